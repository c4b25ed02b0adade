package locking

import (
	"context"
	"errors"
	"time"
)

// Options of Do. The zero value is usable.
type Options struct {
	Backoff        Backoff       // between attempts, for a Store that is no Waiter
	MaxHold        time.Duration // ends renewal and cancels fn; 0: one minute
	ReleaseTimeout time.Duration // limit of the detached release; 0: one second
	Observer       Observer      // nil costs nothing
}

// Backoff is exponential with jitter.
type Backoff struct {
	Base time.Duration // first wait; 0: 10 ms
	Max  time.Duration // longest wait; 0: 500 ms
}

// Kind says what happened to a lock.
type Kind string

// The kinds of Event.
const (
	Attempt  Kind = "attempt"
	Acquired Kind = "acquired"
	Busy     Kind = "busy"
	TimedOut Kind = "timed_out"
	Renewed  Kind = "renewed"
	Lost     Kind = "lost"
	Released Kind = "released"
)

// Event is what an Observer is told.
type Event struct {
	Kind  Kind
	Keys  []string
	Owner string
	Fence Fence
	Wait  time.Duration // from the first attempt
	Held  time.Duration // since the grant
	Err   error
}

// Observer is told of each event, in the goroutine in which it happened. It must not block.
type Observer func(Event)

// Acquire waits for the keys until ctx ends.
func Acquire(ctx context.Context, s Store, o Options, keys ...string) (Lease, error) {
	return Lease{}, errors.New("locking: not written yet")
}

// Do runs fn while it holds the keys.
func Do(ctx context.Context, s Store, o Options, keys []string, fn func(context.Context, Lease) error) error {
	return errors.New("locking: not written yet")
}
