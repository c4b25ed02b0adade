// SPDX-License-Identifier: MIT

package wallet

import (
	"context"

	"github.com/google/uuid"

	"shop/locking/mongolock"
)

// lockID locks with the first statement of its transaction. It is right, and the default.
//
// Of two credits, one is refused at that statement, before it has read the balance or called
// the bonus service, and begins again. From that statement to the commit no other transaction
// writes the wallet. lockID uses the document that the lock returns. The snapshot of a
// transaction is taken by its first statement: a lookup of the key before the lock would take
// an older one.
//
// MongoDB does not let the second transaction wait. So requests wait in the queue of this
// process (queue.go): at most one writer per process still contends.
func (s *Service) lockID(ctx context.Context, o *operation) (Reply, error) {
	return s.transact(ctx, o, func(ctx context.Context) (Reply, error) {
		wallets, err := s.lock(ctx, o)
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, o, wallets, s.callBonus)
	})
}

// lock locks and reads the operation's wallets, in id order. ForUpdate writes a new lockId in each
// attempt.
func (s *Service) lock(ctx context.Context, o *operation) ([]Wallet, error) {
	return each(o, func(id uuid.UUID, w *Wallet) error { return mongolock.ForUpdate(ctx, s.wallets, id, w) })
}
