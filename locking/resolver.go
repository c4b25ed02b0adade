package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// orphansMax limits how many removals run at once. When the server does not answer,
// all further orphans are left to expire.
const orphansMax = 64

// Resolver is the part of a Store that resolves requests without an answer, and owns
// the goroutines for that. It needs a server that recognizes an owner: a repeated
// request to acquire finds its own grant and renews it.
type Resolver struct {
	ttl            time.Duration
	requestTimeout time.Duration
	life           context.Context // ends with Close
	end            context.CancelFunc
	orphans        chan struct{} // one element for each removal under way

	mu   sync.Mutex // nothing starts after Close, which would not wait for it
	work sync.WaitGroup
}

// NewResolver makes the Resolver of a Store with this TTL, in which a request waits at
// most requestTimeout for its answer.
func NewResolver(ttl, requestTimeout time.Duration) *Resolver {
	life, end := context.WithCancel(context.Background())
	return &Resolver{ttl: ttl, requestTimeout: requestTimeout, life: life, end: end, orphans: make(chan struct{}, orphansMax)}
}

// Acquire calls send until the server has answered, for at most half the TTL. send sends
// a request to acquire, with the same owner each time, and returns ErrOutcomeUnknown if
// there was no answer. If no answer comes, or ctx ends first, what the requests may have taken is removed, as by Abandon,
// and once more after requestTimeout: a busy server may execute a removal before a request that was sent earlier, on another connection.
func (r *Resolver) Acquire(ctx context.Context, send func() error, remove func(context.Context) error) error {
	deadline := time.Now().Add(r.ttl / 2)
	for unknown, pause := false, time.Millisecond; ; pause = min(2*pause, r.requestTimeout) {
		err := send()
		unknown = unknown || errors.Is(err, ErrOutcomeUnknown)
		if err == nil || !unknown {
			return err
		}
		last := errors.Is(err, ErrBusy) || time.Now().Add(pause).After(deadline)
		if last || !sleep(ctx, pause) {
			r.abandon(remove, func() {
				time.AfterFunc(r.requestTimeout, func() { r.Abandon(remove) })
			})
			if errors.Is(err, ErrBusy) {
				return err
			}
			return NoAnswer(ctx, err)
		}
	}
}

// Abandon calls remove in the background until it returns nil, for at most one TTL:
// after that nothing is left to remove. A request that arrives after remove takes the
// lock for one TTL at most.
func (r *Resolver) Abandon(remove func(context.Context) error) { r.abandon(remove, func() {}) }

// abandon calls removed if remove has returned nil.
func (r *Resolver) abandon(remove func(context.Context) error, removed func()) {
	select {
	case r.orphans <- struct{}{}:
	default:
		return
	}
	r.Go(func() {
		defer func() { <-r.orphans }()
		ctx, cancel := context.WithTimeout(r.life, r.ttl)
		defer cancel()
		for pause := time.Millisecond; remove(ctx) != nil; pause = min(2*pause, r.requestTimeout) {
			if !sleep(ctx, pause) {
				return
			}
		}
		removed()
	})
}

// Go runs f in a goroutine that Close waits for. False: the Resolver is closed.
func (r *Resolver) Go(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Closed() {
		return false
	}
	r.work.Go(f)
	return true
}

// Closed reports whether Close was called.
func (r *Resolver) Closed() bool { return r.life.Err() != nil }

// Close cancels the background work and waits for it, at most for one request.
func (r *Resolver) Close() {
	r.mu.Lock()
	r.end()
	r.mu.Unlock()
	r.work.Wait()
}

// NoAnswer wraps err in ErrOutcomeUnknown, unless it matches that already. If the
// caller's ctx has ended, ctx.Err() replaces err.
func NoAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, MaskTimeout(ctx, err))
}

// Unsent returns the error of a request that was not sent, since no connection could be had, with the cause. It does not
// match ErrOutcomeUnknown. It matches ctx.Err() if ctx has ended.
func Unsent(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	return fmt.Errorf("no connection: %w", MaskTimeout(ctx, err))
}

// MaskTimeout keeps a time-out of a Store, or of its client, from matching the errors
// of a ctx: errors.Is must match those only when the caller's ctx has ended.
func MaskTimeout(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return fmt.Errorf("no answer in time (%v)", err)
	}
	return err
}
