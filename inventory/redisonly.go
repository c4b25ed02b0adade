package inventory

import (
	"context"
	"errors"
	"fmt"

	"shop/locking"
)

// redisOnly: naive's read and write, under a Redis lock. Wrong.
//
// It is right as long as the lock is held. But a lease ends by itself: the holder
// is paused, Redis fails over, an operator deletes the key, and a second buyer reads
// what the first is about to overwrite. Nothing in PostgreSQL notices. It does not
// help that the holder learns of the loss: that may be after its COMMIT was sent.
func (s *Service) redisOnly(ctx context.Context, p *purchase) (Reply, error) {
	reply, err := s.underLock(ctx, p, func(ctx context.Context) (Reply, error) {
		return s.naive(ctx, p)
	})
	if errors.Is(err, errNoLock) { // no lock, no sale: nothing else guards the stock
		return Reply{}, fmt.Errorf("%w: %v", locking.ErrBusy, err)
	}
	return reply, err
}
