package inventory

import (
	"context"
	"errors"
	"fmt"

	"shop/locking"
)

// redisOnly: naive's read and write, under a Redis lock. Wrong.
//
// It holds as long as the lock does. But a lease ends by itself: the holder is
// paused, Redis fails over, someone deletes the key, and a second buyer reads what
// the first is about to overwrite. Nothing in PostgreSQL notices. That the
// holder hears of the loss does not help, it may hear of it after its COMMIT was sent.
func (s *Service) redisOnly(ctx context.Context, p *purchase) (Reply, error) {
	reply, err := s.underLock(ctx, p, func(ctx context.Context) (Reply, error) {
		return s.naive(ctx, p)
	})
	var none *noLockError
	if errors.As(err, &none) { // no lock, no sale: nothing else guards the stock
		return Reply{}, fmt.Errorf("%w: %v", locking.ErrBusy, err)
	}
	return reply, err
}
