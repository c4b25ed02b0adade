package transfer

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/scenario/money"
	"shop/locking/invariant"
)

// spend checks that all money can be spent, and no more: once the holds have
// ended, each account sends its available amount to the next account of its group. Afterwards
// forbidden requests must still be refused.
func spend(ctx context.Context, t *loadtest.Trial) invariant.Findings {
	awaitHolds(ctx, t)
	accounts := money.Accounts(t.Plan)
	// The accounts of a row are of different groups, and do not pay each other.
	findings := money.Postcheck(ctx, t, "account", groups, func(ctx context.Context, i int, row []money.Account) []string {
		var to []money.Account
		for n := range row {
			to = append(to, partner(accounts, i+n))
		}
		return spendAll(ctx, t.Run, i, row, to)
	})
	offend(ctx, t)
	return findings
}

// awaitHolds waits until no hold is reserved, or the sweeper has had time for all of
// them. The audit finds the holds that are left. (Some controls leave holds for ever: they
// are not waited for when twenty rounds of the sweeper have not ended them.)
func awaitHolds(ctx context.Context, t *loadtest.Trial) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return // the audit finds the holds that are left
	}
	defer conn.Close(context.WithoutCancel(ctx))
	reserved := `SELECT count(*) FROM transfers WHERE state = 'reserved'`
	if t.Scenario.Grace > 0 {
		reserved += ` AND expires_at > clock_timestamp() - interval '1 second'`
	}
	for end := time.Now().Add(cmp.Or(t.Scenario.Grace, loadtest.LiveBound(t.TTL()))); time.Now().Before(end); {
		n, err := invariant.Number(ctx, conn, reserved)
		if err == nil && n == 0 || !fault.Wait(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// spendAll returns a text for each account, "" if it is correct.
func spendAll(ctx context.Context, run *loadtest.Run, replica int, from, to []money.Account) []string {
	return money.SpendAll(ctx, run, replica, from, "/v1/accounts/", "available", func(n int, key string, amount int64) *loadtest.Intent {
		return moveIntent(from[n].Client, key, &Move{From: from[n].ID, To: to[n].ID, Amount: amount})
	})
}
