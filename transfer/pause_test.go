// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

// stopped is another Service, like one of another process. A request stops at a step until
// goOn is called, or the test ends.
type stopped struct {
	*transfer.Service
	t       testing.TB
	events  *events
	reached chan struct{}
	goOn    func()
}

func (b *bank) stopAt(step transfer.Step) *stopped { return b.stopAtNth(1, step) }

func (b *bank) stopAtNth(n int32, step transfer.Step) *stopped {
	resumed := make(chan struct{})
	s := &stopped{t: b.T, reached: make(chan struct{}), goOn: sync.OnceFunc(func() { close(resumed) })}
	cfg := b.replica()
	if cfg.Pool == b.Pool { // the test decides how long the request is stopped, and not PostgreSQL
		cfg.Pool = pgtest.Pool(b.T, b.URL, pgtest.Unhurried)
	}
	cfg.Failpoint = locktest.NthAt(n, step, func(context.Context) {
		close(s.reached)
		<-resumed // ignores ctx, like a process that is stopped
	})
	s.Service, s.events = b.another(cfg)
	b.T.Cleanup(s.goOn) // runs before the cleanup of the pool, which waits for the request's connection
	return s
}

// await returns when the request has reached its step.
func (s *stopped) await() {
	s.t.Helper()
	await(s.t, "the request reaches its step", s.reached)
}

// await returns when c is closed, and fails the test if that takes 20 s.
func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("never happened: %s", what)
	}
}

// steal deletes the locks of all holders.
func (b *bank) steal(t *testing.T) {
	t.Helper()
	if err := b.locks.steal(context.Background()); err != nil {
		t.Error(err)
	}
}
