// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"shop/locking"
)

// redisOnly runs naive's read and write under a Redis lock. Wrong.
//
// It is correct as long as the lock is held. But a lease can be lost: the holder
// is paused, Redis fails over, or an operator deletes the key, and a second buyer reads
// what the first is about to overwrite. Nothing in PostgreSQL notices. It does not
// help that the holder learns of the loss: its COMMIT may already be sent.
func (s *Service) redisOnly(ctx context.Context, p *purchase) (Reply, error) {
	reply, err := s.underLock(ctx, p, func(ctx context.Context) (Reply, error) {
		return s.naive(ctx, p)
	})
	return reply, noLockIsBusy(err)
}

// redisOnlyCancel is a cancellation beside redisOnly purchases. It takes their lock, because
// a purchase that has already read the stock would otherwise overwrite the returned units.
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

// noLockIsBusy turns errNoLock into ErrBusy: without the lock nothing guards the stock.
func noLockIsBusy(err error) error {
	if errors.Is(err, errNoLock) {
		return locking.Like(locking.ErrBusy, errors.New(err.Error()))
	}
	return err
}
