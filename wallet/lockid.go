package wallet

import (
	"context"

	"github.com/google/uuid"

	"shop/locking/mongolock"
)

// lockID: the lock is the transaction's first statement. Right, and the default.
//
// Of two credits, one is refused at that statement, before it has read the
// balance or asked the bonus service, and begins again. No other transaction is between
// that statement and the commit. lockID reads what the lock returns, not the wallet
// again: the snapshot of a transaction is that of its first statement, the lock. With
// a lookup of the key before it, the snapshot would be that of the lookup.
//
// MongoDB does not let the second one wait, so that in front of it stands the
// queue of this process (queue.go): at most one writer per process still contends.
func (s *Service) lockID(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context) (Reply, error) {
		wallets, err := s.lock(ctx, j)
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, j, wallets, s.ask)
	})
}

// lock locks and reads the job's wallets, in id order. ForUpdate writes a lockId
// that is made in this very attempt.
func (s *Service) lock(ctx context.Context, j *job) ([]Wallet, error) {
	return each(j, func(id uuid.UUID, w *Wallet) error { return mongolock.ForUpdate(ctx, s.wallets, id, w) })
}
