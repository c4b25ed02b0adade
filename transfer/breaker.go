package transfer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/breaker"
)

// probeEvery is the interval between probes of a lock service that does not answer.
const probeEvery = 250 * time.Millisecond

// newBreaker makes the circuit breaker in front of the lock service. While the service does
// not answer, transfers are refused at once instead of waiting for a time-out. A transfer
// that holds a lease does not pass the breaker: it finishes while it may trust the lease.
func (s *Service) newBreaker() *breaker.Breaker {
	key := "probe/" + uuid.NewString()
	return breaker.New(breaker.Config{
		Every: probeEvery, Timeout: s.cfg.Lock.MaxWait,
		Probe: func(ctx context.Context) error {
			store := cmp.Or(s.cfg.Locks, s.cfg.LeaseIDs)
			lease, err := store.TryAcquire(ctx, key)
			switch {
			case err == nil:
				_ = store.Release(ctx, lease) // if that fails, the lease expires
			case errors.Is(err, locking.ErrBusy), errors.Is(err, ErrEpoch): // the service has answered
				return nil
			}
			return err
		},
	})
}

// Unreachable reports whether the breaker is open: the lock service left the last request unanswered.
func (s *Service) Unreachable() bool { return s.breaker.Open() }
