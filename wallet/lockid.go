package wallet

import (
	"context"

	"github.com/google/uuid"

	"shop/locking/mongolock"
)

// lockID: the lock is the transaction's first statement. Right, and the default.
//
// Of two credits, one is refused at that statement, before it has read the
// balance or asked the outside, and begins again. Whoever is past it knows that
// nobody else is between there and his commit. It reads what the lock returns,
// not the wallet again: a transaction sees one moment, and that moment is the
// lock's because the lock came first. Look the key up before it, and the moment is
// that of the look.
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
