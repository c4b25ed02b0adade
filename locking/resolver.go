package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// orphansMax limits how many orphans are removed at once. When the server is silent,
// the rest is left to the TTL.
const orphansMax = 64

// Resolver is the part of a Store that finds out about requests without an answer,
// and owns the goroutines for that. It is for a server that knows an owner again: a
// request to acquire that is repeated finds its own grant, and renews it.
type Resolver struct {
	ttl            time.Duration
	requestTimeout time.Duration
	life           context.Context // ends with Close
	end            context.CancelFunc
	orphans        chan struct{} // a place for each removal under way

	mu   sync.Mutex // no start after Close: it would not be waited for
	work sync.WaitGroup
}

// NewResolver makes the Resolver of a Store with this TTL, whose answers are waited
// for as long as requestTimeout.
func NewResolver(ttl, requestTimeout time.Duration) *Resolver {
	life, end := context.WithCancel(context.Background())
	return &Resolver{ttl: ttl, requestTimeout: requestTimeout, life: life, end: end, orphans: make(chan struct{}, orphansMax)}
}

// Acquire calls ask until the server has answered, for at most half the TTL. ask sends
// a request to acquire, of the same owner each time, and returns ErrOutcomeUnknown if
// there was no answer. If the answer never comes, or ctx ends first, what the
// requests may have taken is removed as by Abandon.
func (r *Resolver) Acquire(ctx context.Context, ask func() error, remove func(context.Context) error) error {
	giveUp := time.Now().Add(r.ttl / 2)
	for unknown, pause := false, time.Millisecond; ; pause *= 2 {
		err := ask()
		unknown = unknown || errors.Is(err, ErrOutcomeUnknown)
		if err == nil || !unknown {
			return err
		}
		last := errors.Is(err, ErrBusy) || time.Now().Add(pause).After(giveUp)
		if last || !sleep(ctx, pause) {
			r.Abandon(remove)
			if errors.Is(err, ErrBusy) {
				return err
			}
			return NoAnswer(ctx, err)
		}
	}
}

// Abandon calls remove in the background until it returns nil, for at most one TTL:
// then nothing is left to remove. The TTL also ends a lock of a request that arrives
// after remove.
func (r *Resolver) Abandon(remove func(context.Context) error) {
	select {
	case r.orphans <- struct{}{}:
	default:
		return
	}
	r.Go(func() {
		defer func() { <-r.orphans }()
		ctx, cancel := context.WithTimeout(r.life, r.ttl)
		defer cancel()
		for pause := time.Millisecond; remove(ctx) != nil && sleep(ctx, pause); {
			pause = min(2*pause, r.requestTimeout)
		}
	})
}

// Go runs f in a goroutine that Close waits for. False: it is closed.
func (r *Resolver) Go(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Closed() {
		return false
	}
	r.work.Go(f)
	return true
}

// Closed tells whether Close was called.
func (r *Resolver) Closed() bool { return r.life.Err() != nil }

// Close ends the background work and waits for it, at most as long as for one answer.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.end()
	r.mu.Unlock()
	r.work.Wait()
}

// NoAnswer marks err as one that leaves the outcome open: ErrOutcomeUnknown. If the
// caller's ctx has ended, that is the reason given.
func NoAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, MaskTimeout(ctx, err))
}

// MaskTimeout hides that a time-out of a Store, or of its client, looks like the end of
// the caller's ctx: errors.Is must say so only when it is.
func MaskTimeout(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return fmt.Errorf("no answer in time (%v)", err)
	}
	return err
}
