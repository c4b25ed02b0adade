// SPDX-License-Identifier: MIT

package transfer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// spend checks that all money can be spent, and no more: once the holds have
// ended, each account sends its available amount to the next account of its group. Afterwards
// forbidden requests must still be refused.
func spend(ctx context.Context, t *loadtest.Trial) invariant.Findings {
	late := awaitHolds(ctx, t)
	accounts := money.Accounts(t.Plan)
	// The accounts of a row are of different groups, and do not pay each other.
	findings := money.Postcheck(ctx, t, "account", groups, func(ctx context.Context, i int, row []money.Account) []string {
		var to []money.Account
		for n := range row {
			to = append(to, partner(accounts, i+n))
		}
		return spendAll(ctx, t.Run, i, row, to)
	})
	t.Offend(ctx, offences("", accounts[0], accounts[groups], uuid.New()), attacks)
	if late > 0 {
		findings.Add("I-HOLD", fmt.Sprintf("%d holds are still reserved, more than %v after they have expired: the sweeper has not ended them", late, sweepTime))
	}
	return findings
}

// sweepTime is how long a hold may be over before the sweeper has ended it, when the faults are over.
const sweepTime = 2 * time.Second

// awaitHolds waits until no hold is reserved, or the sweeper has had time for all of
// them, and returns how many it has left over. A payment from an account that is short of money would end them, so the
// audit, which comes after such payments, does not find them. (Some controls leave holds for ever: they
// are not waited for when twenty rounds of the sweeper have not ended them.)
func awaitHolds(ctx context.Context, t *loadtest.Trial) (late int64) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return 0 // the audit says so
	}
	defer conn.Close(context.WithoutCancel(ctx))
	reserved := `SELECT count(*) FROM transfers WHERE state = 'reserved'`
	if t.Scenario.Grace > 0 {
		reserved += ` AND expires_at > clock_timestamp() - interval '1 second'`
	}
	for end := time.Now().Add(cmp.Or(t.Scenario.Grace, judge.LiveBound(t.TTL()))); time.Now().Before(end); {
		n, err := invariant.Number(ctx, conn, reserved)
		if err == nil && n == 0 || !fault.Wait(ctx, 20*time.Millisecond) {
			return 0
		}
	}
	if t.Scenario.Grace > 0 {
		return 0
	}
	late, _ = invariant.Number(ctx, conn, fmt.Sprintf(`
		SELECT count(*) FROM transfers WHERE state = 'reserved' AND expires_at < clock_timestamp() - interval '%d milliseconds'`, sweepTime.Milliseconds()))
	return late
}

// spendAll returns a text for each account, "" if it is correct.
func spendAll(ctx context.Context, run *traffic.Run, replica int, from, to []money.Account) []string {
	return money.SpendAll(ctx, run, replica, from, "/v1/accounts/", "available", func(n int, key string, amount int64) *traffic.Intent {
		return moveIntent(from[n].Client, key, &Move{From: from[n].ID, To: to[n].ID, Amount: amount})
	})
}
