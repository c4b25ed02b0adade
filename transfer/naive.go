package transfer

import "context"

// selectAccounts reads without a lock: from the next moment on, it is out of date.
const selectAccounts = `
	SELECT id, owner_id, currency, balance, held, clock_timestamp()
	FROM accounts
	WHERE id = ANY($1)`

// naive: read, check, then write what was computed. Wrong.
//
// Two transfers read "100", one writes 100 − 30, the other 100 − 20: one of them
// moved money that the payer still has. The transaction does not help, it begins after
// the read; CHECK (balance >= held) does not help, neither writes less than 0. It
// passes every test with one transfer at a time.
func (s *Service) naive(ctx context.Context, o *operation) (Reply, error) {
	o.Deferred = true
	return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
		a.read(selectAccounts, o.pair())
		if err := a.guarded(ctx); err != nil {
			return Reply{}, err
		}
		if err := a.Begin(ctx, ""); err != nil {
			return Reply{}, err
		}
		if o.change != nil {
			a.endHold(*o.change)
			if err := a.Flush(ctx); err != nil {
				return Reply{}, err
			}
		}
		return a.decideNow(ctx)
	})
}
