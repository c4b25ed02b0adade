// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/locking"
	"shop/locking/breaker"
)

// probeEvery is the interval between probes of an unreachable lock store, and the timeout of a probe.
const probeEvery = 500 * time.Millisecond

// newBreaker returns the circuit breaker in front of the lock store: while the store gives
// no answer, purchases do not wait for its timeout.
func (s *Service) newBreaker() *breaker.Breaker {
	var opened time.Time
	return breaker.New(breaker.Config{
		Every: probeEvery, Timeout: probeEvery, Probe: breaker.Lock(s.cfg.Locks),
		Changed: func(why error) {
			if why == nil {
				s.cfg.Log.Info("inventory: the lock store is back", "after", time.Since(opened))
				return
			}
			opened = time.Now()
			s.cfg.Log.Warn("inventory: the lock store cannot be reached; purchases go on with the row lock alone",
				"at_once", cap(s.bypass), "error", why)
		},
	})
}

// Degraded probes the lock store, and reports whether it is unreachable. While it is,
// purchases go on with the row lock alone.
func (s *Service) Degraded(ctx context.Context) bool {
	return s.cfg.Locks != nil && s.breaker.Check(ctx) != nil && s.breaker.Open()
}

// Unreachable reports the state known from the last purchase or probe, without a new probe.
func (s *Service) Unreachable() bool { return s.breaker.Open() }

// slotTimeout is how long a purchase waits for a slot to go on without the lock.
const slotTimeout = 100 * time.Millisecond

// rowAlone is row for a bounded number of purchases at once. Without the lock store in
// front, buyers of one row queue inside PostgreSQL, each with a connection. All reasons
// share one bound: if the waiters of a flash sale time out together, a few of them go on,
// and the others get ErrBusy. Half of the connections remain for the purchases that hold
// their locks and for all other products.
func (s *Service) rowAlone(ctx context.Context, p *purchase, why error) (Reply, error) {
	leave, err := s.slot(ctx, p, slotTimeout)
	if err != nil {
		return Reply{}, err
	}
	defer leave()
	if errors.Is(why, locking.ErrBusy) {
		s.cfg.Count(Bypassed, p.Label)
		s.logBusy.Do(func() { // every purchase of the product would log the same stuck lock
			s.cfg.Log.Warn("inventory: a lock stays busy; purchases go on with the row lock alone",
				"skus", p.skus, "at_once", cap(s.bypass), "error", why)
		})
	} else {
		s.cfg.Count(Degraded, p.Label)
	}
	return s.row(ctx, p)
}

// slot waits for a slot of the purchases that go on without the lock. Call leave to give it back.
func (s *Service) slot(ctx context.Context, p *purchase, limit time.Duration) (leave func(), err error) {
	select {
	case s.bypass <- struct{}{}:
		return func() { <-s.bypass }, nil
	case <-time.After(limit):
		s.cfg.Count(Shed, p.Label)
		return nil, locking.Like(locking.ErrBusy, fmt.Errorf("inventory: %d purchases already go on without the lock", cap(s.bypass)))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
