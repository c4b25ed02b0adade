package transfer

import "context"

// row: SELECT … FOR UPDATE of both accounts, then write. Right, and enough where
// everything that moves is in one database.
//
// The lock is the row itself, so that nobody can forget it, lose it, or hold it
// without the database knowing: it lives and dies with the transaction. Whoever
// comes second waits inside the SELECT and then reads what the first committed.
func (s *Service) row(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
		if err := t.begin(ctx, "begin"); err != nil {
			return Reply{}, err
		}
		// ORDER BY sorts before it locks, by a key that never changes, so that
		// X→Y and Y→X lock X first, both.
		t.exec(`
			SELECT FROM accounts
			WHERE id = ANY($1)
			ORDER BY id
			FOR UPDATE`, j.pair())
		// A statement of its own, so that it begins after the wait: its clock too.
		t.read(selectAccounts, j.pair())
		return t.rest(ctx, j)
	})
}

// rest is the part after the read that the strategies which read inside their
// one transaction share.
func (t *tx) rest(ctx context.Context, j *job) (Reply, error) {
	if j.change != nil {
		t.change(j.id, *j.change)
	}
	if err := t.guarded(ctx); err != nil {
		return Reply{}, err
	}
	return j.finish(ctx, t)
}
