package wallet_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"shop/locking"
	"shop/wallet"
)

// until repeats a request with the same key until it has a final answer, as a client
// does after ErrBusy or ErrOutcomeUnknown.
func until(ctx context.Context, do func() (wallet.Reply, error)) (wallet.Reply, error) {
	for {
		reply, err := do()
		again := errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown)
		if !again || ctx.Err() != nil {
			return reply, err
		}
	}
}

// meet lets the first n that come to a step wait for each other there. Those
// that come later pass.
func meet(n int32, at wallet.Step) func(context.Context, wallet.Step, string) {
	var here atomic.Int32
	all := make(chan struct{})
	return func(ctx context.Context, step wallet.Step, _ string) {
		if step != at {
			return
		}
		switch k := here.Add(1); {
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

// outcome is what became of a request.
type outcome struct {
	reply wallet.Reply
	err   error
}

// beside runs a request beside the test.
func beside(do func() (wallet.Reply, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		reply, err := do()
		done <- outcome{reply, err}
	}()
	return done
}

// stopAt stops the first that comes to a step.
type stopAt struct {
	step          wallet.Step
	reached, goOn chan struct{}
	once          sync.Once
}

func (s *stopAt) hook(ctx context.Context, step wallet.Step, _ string) {
	if step != s.step {
		return
	}
	s.once.Do(func() {
		close(s.reached)
		select {
		case <-s.goOn:
		case <-ctx.Done():
		}
	})
}
