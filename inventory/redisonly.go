package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

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
	return reply, noLockIsBusy(err)
}

// redisOnlyCancel is a cancellation beside such purchases. A lock binds only what takes it:
// without it, a purchase that has read the stock before would overwrite what is given back.
func (s *Service) redisOnlyCancel(ctx context.Context, req Request, id uuid.UUID) (Reply, error) {
	order, err := s.Order(ctx, req.Client, id)
	if err != nil {
		return Reply{}, err
	}
	p := &purchase{}
	for _, l := range order.Lines {
		p.skus = append(p.skus, l.SKU)
	}
	reply, err := s.underLock(ctx, p, func(ctx context.Context) (Reply, error) { return s.cancel(ctx, req, id) })
	return reply, noLockIsBusy(err)
}

// noLockIsBusy: no lock, no change; nothing else guards the stock.
func noLockIsBusy(err error) error {
	if errors.Is(err, errNoLock) {
		return fmt.Errorf("%w: %v", locking.ErrBusy, err)
	}
	return err
}
