// SPDX-License-Identifier: MIT

package transfer

import "context"

// row locks both accounts with SELECT … FOR UPDATE, then writes. It is right without any
// other lock, if everything that moves is in one database.
//
// The lock is the row itself. It is held until the transaction ends, and cannot be lost or
// forgotten. The second transfer waits inside the SELECT, and then reads what the first one
// committed.
func (s *Service) row(ctx context.Context, o *operation) (Reply, error) {
	return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
		a.lockRows()
		return a.readAndDecide(ctx)
	})
}

// lockRows queues the statements that lock and read both accounts.
func (a *attempt) lockRows() {
	// ORDER BY sorts before FOR UPDATE locks, by a key that never changes. So X→Y and
	// Y→X both lock X first.
	a.Queue(`
		SELECT FROM accounts
		WHERE id = ANY($1)
		ORDER BY id
		FOR UPDATE`, a.pair())
	// A separate statement begins after the wait: it reads the rows and the clock as they are then.
	a.read(selectAccounts, a.pair())
}
