// SPDX-License-Identifier: MIT

package transfer

import (
	"cmp"
	"time"

	"shop/locking/breaker"
)

// probeEvery is the interval between probes of a lock service that does not answer.
const probeEvery = 250 * time.Millisecond

// newBreaker makes the circuit breaker in front of the lock service. While the service does
// not answer, transfers are refused at once instead of waiting for a time-out. A transfer
// that holds a lease does not pass the breaker: it finishes while it may trust the lease.
func (s *Service) newBreaker() *breaker.Breaker {
	return breaker.New(breaker.Config{
		Every: probeEvery, Timeout: s.cfg.Lock.MaxWait,
		Probe: breaker.Lock(cmp.Or(s.cfg.Locks, s.cfg.LeaseIDs), ErrEpoch),
	})
}

// Unreachable reports whether the breaker is open: the lock service left the last request unanswered.
func (s *Service) Unreachable() bool { return s.breaker.Open() }
