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

// probeEvery is how often a lock service that gives no answer is asked again.
const probeEvery = 250 * time.Millisecond

// newBreaker is in front of the lock service: while that gives no answer, transfers
// are refused at once, and do not queue for a time-out, each with a client waiting. A
// transfer that holds a lease does not come by here; it finishes while it may trust
// the lease.
func (s *Service) newBreaker() *breaker.Breaker {
	key := "probe/" + uuid.NewString()
	return breaker.New(breaker.Config{
		Every: probeEvery, Timeout: s.cfg.Lock.MaxWait,
		Probe: func(ctx context.Context) error {
			store := cmp.Or(s.cfg.Locks, s.cfg.LeaseIDs)
			lease, err := store.TryAcquire(ctx, key)
			switch {
			case err == nil:
				_ = store.Release(ctx, lease) // else its TTL ends it
			case errors.Is(err, locking.ErrBusy), errors.Is(err, ErrEpoch): // an answer
				return nil
			}
			return err
		},
	})
}

// Unreachable reports whether the lock service gave no answer when it was last asked.
func (s *Service) Unreachable() bool { return s.breaker.Open() }
