// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"sync"
	"sync/atomic"
)

// Failpoint is the function that a service calls at each step S of an operation, in tests.
type Failpoint[S comparable] = func(ctx context.Context, step S, strategy string)

// NthAt calls do the nth time that a step is reached, counted from 1.
func NthAt[S comparable](n int32, at S, do func(context.Context)) Failpoint[S] {
	var reached atomic.Int32
	return func(ctx context.Context, step S, _ string) {
		if step == at && reached.Add(1) == n {
			do(ctx)
		}
	}
}

// OnceAt calls do the first time that a step is reached.
func OnceAt[S comparable](at S, do func(context.Context)) Failpoint[S] { return NthAt(1, at, do) }

// MeetAt makes the first n callers that reach a step wait for each other there, so that
// they overlap with certainty instead of by luck. Later callers pass.
func MeetAt[S comparable](n int32, at S) Failpoint[S] {
	var here atomic.Int32
	all := make(chan struct{})
	return func(ctx context.Context, step S, _ string) {
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

// PauseAt stops the first caller that reaches a step, and then closes reached. The caller
// continues when resume is called or its ctx ends.
func PauseAt[S comparable](at S) (pause Failpoint[S], reached <-chan struct{}, resume func()) {
	there, resumed := make(chan struct{}), make(chan struct{})
	pause = OnceAt(at, func(ctx context.Context) {
		close(there)
		select {
		case <-resumed:
		case <-ctx.Done():
		}
	})
	return pause, there, sync.OnceFunc(func() { close(resumed) })
}

// Outcome is the result of a request.
type Outcome[R any] struct {
	Reply R
	Err   error
}

// Pair returns the outcome as two values.
func (o Outcome[R]) Pair() (R, error) { return o.Reply, o.Err }

// Beside runs a request in a goroutine, and sends its outcome.
func Beside[R any](do func() (R, error)) <-chan Outcome[R] {
	done := make(chan Outcome[R], 1)
	go func() {
		reply, err := do()
		done <- Outcome[R]{reply, err}
	}()
	return done
}

// Counts counts events by their kind. The zero value is ready.
type Counts[K comparable] struct {
	mu sync.Mutex
	n  map[K]int
}

// Count adds one of a kind.
func (c *Counts[K]) Count(kind K, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[K]int{}
	}
	c.n[kind]++
}

// Of returns the number of events of a kind.
func (c *Counts[K]) Of(kind K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[kind]
}
