package transfer

import "context"

// selectAccounts reads without a lock: from the next moment on, it is about the past.
const selectAccounts = `
	SELECT id, owner_id, currency, balance, held, version, clock_timestamp()
	FROM accounts
	WHERE id = ANY($1)`

// naive: read, check, then write what was computed. Wrong.
//
// Two transfers read "100", one writes 100 − 30, the other 100 − 20: one of them
// moved money that the payer still has. The transaction does not help, it begins after
// the read; CHECK (balance >= held) does not help, nobody writes less than 0. It
// passes every test with one transfer at a time.
func (s *Service) naive(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
		t.read(selectAccounts, j.pair())
		if err := t.guarded(ctx); err != nil {
			return Reply{}, err
		}
		if err := t.begin(ctx, "begin"); err != nil {
			return Reply{}, err
		}
		if j.change != nil {
			t.change(j.id, *j.change)
			if err := t.flush(ctx); err != nil {
				return Reply{}, err
			}
		}
		return j.finish(ctx, t)
	})
}
