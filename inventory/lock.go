package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/breaker"
)

// noLockError is why a purchase has no lock. It matches locking.ErrBusy when
// another holder kept the lock for all of MaxWait; else the lock store gave no
// answer, which is neither a grant nor "busy".
type noLockError struct{ err error }

func (e *noLockError) Error() string { return "inventory: no lock: " + e.err.Error() }
func (e *noLockError) Unwrap() error { return e.err }

// underLock runs fn while the lock store grants all skus to this purchase.
//
// What fn returns is what happened. If the lease was lost meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the purchase stands.
func (s *Service) underLock(ctx context.Context, p *purchase, fn func(context.Context) (Reply, error)) (Reply, error) {
	if err := s.breaker.Allow(ctx); err != nil {
		return Reply{}, &noLockError{err}
	}
	var (
		reply   Reply
		fnErr   error
		entered bool
		start   = time.Now()
	)
	err := locking.Do(ctx, s.locks, s.lock, lockNames(p.skus), func(ctx context.Context, _ locking.Lease) error {
		entered = true
		reply, fnErr = fn(ctx)
		return fnErr
	})
	if entered {
		return reply, fnErr
	}
	return Reply{}, s.notGranted(ctx, err, time.Since(start))
}

// notGranted tells apart why there is no lock: the caller left, another holder
// has it, or the store does not answer.
func (s *Service) notGranted(ctx context.Context, err error, waited time.Duration) error {
	busy := errors.Is(err, locking.ErrBusy)
	switch {
	case errors.Is(err, locking.ErrKey):
		return err
	case ctx.Err() != nil:
		if ctx.Err() == context.DeadlineExceeded && !busy && waited > slotTimeout {
			s.breaker.Failed(err) // not one answer in all the time that the caller had
		}
		return context.Cause(ctx)
	case !busy:
		s.breaker.Failed(err)
	}
	return &noLockError{err}
}

// lockNames are the keys of the skus at the lock store, in the same order.
func lockNames(skus []string) []string {
	names := make([]string, len(skus))
	for i, sku := range skus {
		names[i] = "product/" + sku
	}
	return names
}

// Degraded probes the lock store, and reports whether it gives no answer: then
// redis+row goes on with the row lock alone.
func (s *Service) Degraded(ctx context.Context) bool {
	return s.locks != nil && s.breaker.Check(ctx) != nil && s.breaker.Open()
}

// Unreachable reports the same as of the last purchase or probe, and asks nothing.
func (s *Service) Unreachable() bool { return s.breaker.Open() }

const (
	probeEvery  = 500 * time.Millisecond // how often an unreachable store is asked again, and how long that may take
	slotTimeout = 100 * time.Millisecond // how long a purchase waits to go on without the lock
	logEvery    = 10 * time.Second       // how often the log reports locks that stay busy
)

// newBreaker is in front of the lock store: while that gives no answer, purchases do
// not pay for its time-out. The probe is a lock of the Service's own, because a
// server that is full or read-only answers a ping.
func (s *Service) newBreaker() *breaker.Breaker {
	var opened time.Time
	key := "probe/" + uuid.NewString()
	return breaker.New(breaker.Config{
		Every: probeEvery, Timeout: probeEvery,
		Probe: func(ctx context.Context) error {
			lease, err := s.locks.TryAcquire(ctx, key)
			switch {
			case err == nil:
				_ = s.locks.Release(ctx, lease) // else its TTL ends it
			case errors.Is(err, locking.ErrBusy):
				return nil
			}
			return err
		},
		Changed: func(why error) {
			if why == nil {
				s.bypass.log.Info("inventory: the lock store is back", "after", time.Since(opened))
				return
			}
			opened = time.Now()
			s.bypass.log.Warn("inventory: the lock store cannot be reached; redis+row goes on with the row lock alone",
				"at_once", cap(s.bypass.slots), "error", why)
		},
	})
}

// bypass bounds the purchases that go on without the lock.
type bypass struct {
	slots chan struct{} // one for each; its size is the bound
	log   *slog.Logger

	mu       sync.Mutex
	loggedAt time.Time // when the log last reported a lock that stays busy
}

// busy reports that a purchase goes on though its lock is busy, once in logEvery:
// each purchase of that product waits for the same stuck lock.
func (b *bypass) busy(skus []string, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.loggedAt) >= logEvery {
		b.loggedAt = now
		b.log.Warn("inventory: a lock stays busy; redis+row goes on with the row lock alone",
			"skus", skus, "at_once", cap(b.slots), "error", why)
	}
}

// enter waits shortly for a slot. Without the lock store in front, buyers of one
// row queue inside PostgreSQL, each with a connection: so few at once, and the
// others are busy.
func (b *bypass) enter(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	case <-timer.C:
		return nil, fmt.Errorf("%w: %d purchases already go on without the lock", locking.ErrBusy, cap(b.slots))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
