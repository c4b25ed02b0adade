package transfer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"shop/locking/locktest"
	"shop/transfer"
)

// stopped is a Service of its own, as another process would be, whose first
// request stops at a step until it is let go, or the test ends.
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
	cfg.Failpoint = locktest.NthAt(n, step, func(context.Context) {
		close(s.reached)
		<-resumed // deaf to ctx, like a process that is stopped
	})
	s.Service, s.events = b.another(cfg)
	b.T.Cleanup(s.goOn) // before the pool's, which waits for the request's connection
	return s
}

// await returns when the request stands at its step.
func (s *stopped) await() {
	s.t.Helper()
	await(s.t, "the request reaches its step", s.reached)
}

// await returns when c is closed, and ends the test if it is not.
func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("never happened: %s", what)
	}
}

// steal takes the locks of all holders away.
func (b *bank) steal(t *testing.T) {
	t.Helper()
	if err := b.locks.steal(context.Background()); err != nil {
		t.Error(err)
	}
}
