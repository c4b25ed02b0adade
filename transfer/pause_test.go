package transfer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/transfer"
)

type failpoint = func(context.Context, transfer.Step, string)

// onceAt does something the first time that a step is reached.
func onceAt(at transfer.Step, do func(context.Context)) failpoint { return nthAt(1, at, do) }

// nthAt does something the n-th time that a step is reached.
func nthAt(n int32, at transfer.Step, do func(context.Context)) failpoint {
	var reached atomic.Int32
	return func(ctx context.Context, step transfer.Step, _ string) {
		if step == at && reached.Add(1) == n {
			do(ctx)
		}
	}
}

// meet returns a Failpoint at which n transfers wait for each other after they
// have read, once: the worst moment, hit with certainty instead of by luck.
func meet(n int32) failpoint {
	var arrived atomic.Int32
	all := make(chan struct{})
	return func(ctx context.Context, step transfer.Step, _ string) {
		if step != transfer.AfterGuard {
			return
		}
		switch k := arrived.Add(1); {
		case k == n:
			close(all)
		case k < n:
			select {
			case <-all:
			case <-ctx.Done():
			}
		}
	}
}

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
	s := &stopped{t: b.t, reached: make(chan struct{}), goOn: sync.OnceFunc(func() { close(resumed) })}
	cfg := b.replica()
	cfg.Failpoint = nthAt(n, step, func(context.Context) {
		close(s.reached)
		<-resumed // deaf to ctx, like a process that is stopped
	})
	s.Service, s.events = b.another(cfg)
	b.t.Cleanup(s.goOn) // before the pool's, which waits for the request's connection
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

// outcome of a request that runs beside the test.
type outcome struct {
	reply transfer.Reply
	err   error
}

// beside runs a request and says when it is done.
func beside(do func() (transfer.Reply, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		reply, err := do()
		done <- outcome{reply, err}
	}()
	return done
}

// steal takes the locks of all holders away.
func (b *bank) steal(t *testing.T) {
	t.Helper()
	if err := b.locks.steal(context.Background()); err != nil {
		t.Error(err)
	}
}
