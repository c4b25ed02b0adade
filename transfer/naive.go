// SPDX-License-Identifier: MIT

package transfer

import "context"

// selectAccounts reads without a lock: its rows may be out of date at any later moment.
const selectAccounts = `
	SELECT id, owner_id, currency, balance, held, clock_timestamp()
	FROM accounts
	WHERE id = ANY($1)`

// naive reads, checks, then writes what it computed. It is wrong.
//
// Two transfers read 100. One writes 100 − 30, the other 100 − 20: the payer still has the
// money that one of them moved. The transaction does not help, because it begins after the
// read. CHECK (balance >= held) does not help, because neither writes a balance below what is
// held. naive passes every test with one transfer at a time.
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
