package transfer

import "context"

// row: SELECT … FOR UPDATE of both accounts, then write. Safe without
// any other lock, where everything that moves is in one database.
//
// The lock is the row itself. It cannot be forgotten, lost, or held without the
// database knowing: it lives and dies with the transaction. The second transfer
// waits inside the SELECT and then reads what the first one committed.
func (s *Service) row(ctx context.Context, o *operation) (Reply, error) {
	return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
		// ORDER BY sorts before it locks, by a key that never changes, so that
		// X→Y and Y→X lock X first, both.
		a.Exec(`
			SELECT FROM accounts
			WHERE id = ANY($1)
			ORDER BY id
			FOR UPDATE`, o.pair())
		// A statement of its own, so that it begins after the wait: its clock too.
		a.read(selectAccounts, o.pair())
		return a.readAndDecide(ctx)
	})
}
