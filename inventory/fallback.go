package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/breaker"
)

// probeEvery is how often an unreachable lock store is asked again, and how long that may take.
const probeEvery = 500 * time.Millisecond

// newBreaker is in front of the lock store: while that gives no answer, purchases do
// not pay for its time-out. The probe is a lock of the Service's own, because a
// server that is full or read-only answers a ping.
func (s *Service) newBreaker() *breaker.Breaker {
	var opened time.Time
	key := "probe/" + uuid.NewString()
	return breaker.New(breaker.Config{
		Every: probeEvery, Timeout: probeEvery,
		Probe: func(ctx context.Context) error {
			lease, err := s.cfg.Locks.TryAcquire(ctx, key)
			switch {
			case err == nil:
				_ = s.cfg.Locks.Release(ctx, lease) // else its TTL ends it
			case errors.Is(err, locking.ErrBusy):
				return nil
			}
			return err
		},
		Changed: func(why error) {
			if why == nil {
				s.cfg.Log.Info("inventory: the lock store is back", "after", time.Since(opened))
				return
			}
			opened = time.Now()
			s.cfg.Log.Warn("inventory: the lock store cannot be reached; redis+row goes on with the row lock alone",
				"at_once", cap(s.bypass), "error", why)
		},
	})
}

// Degraded probes the lock store, and reports whether it gives no answer: then
// redis+row goes on with the row lock alone.
func (s *Service) Degraded(ctx context.Context) bool {
	return s.cfg.Locks != nil && s.breaker.Check(ctx) != nil && s.breaker.Open()
}

// Unreachable reports the same as of the last purchase or probe, and asks nothing.
func (s *Service) Unreachable() bool { return s.breaker.Open() }

// slotTimeout is how long a purchase waits to go on without the lock.
const slotTimeout = 100 * time.Millisecond

// rowAlone is row for as many purchases at once as the database can bear: without the
// lock store in front, buyers of one row queue inside PostgreSQL, each with a
// connection. The bound is one for all reasons: when the waiters of a flash sale time
// out together, a few of them go on, the others are busy, and half of the connections
// stay with the purchases that hold their locks, and with all other products.
func (s *Service) rowAlone(ctx context.Context, p *purchase, why error) (Reply, error) {
	select {
	case s.bypass <- struct{}{}:
		defer func() { <-s.bypass }()
	case <-time.After(slotTimeout):
		s.cfg.Count(Shed, p.Label)
		return Reply{}, fmt.Errorf("%w: %d purchases already go on without the lock", locking.ErrBusy, cap(s.bypass))
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
	}
	if errors.Is(why, locking.ErrBusy) {
		s.cfg.Count(Bypassed, p.Label)
		s.logBusy.Do(func() { // each purchase of the product waits for the same stuck lock
			s.cfg.Log.Warn("inventory: a lock stays busy; redis+row goes on with the row lock alone",
				"skus", p.skus, "at_once", cap(s.bypass), "error", why)
		})
	} else {
		s.cfg.Count(Degraded, p.Label)
	}
	return s.row(ctx, p)
}
