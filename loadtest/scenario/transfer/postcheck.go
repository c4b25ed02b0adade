package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// spend shows that all money can be spent, and no more than all of it: when the
// holds are over, each account sends what it says is available, which must work,
// and then one more, which must be refused.
func spend(ctx context.Context, t *loadtest.Trial) invariant.Findings {
	ctx, stop := context.WithTimeout(ctx, t.Patience())
	defer stop()
	findings := invariant.Findings{}
	awaitHolds(ctx, t)
	findings.Add("I-SPENT")
	accounts := Accounts(t.Plan)
	for i, from := range accounts {
		to := accounts[(i+1)%len(accounts)]
		if wrong := spendAll(ctx, t.Run, i, from, to); wrong != "" {
			findings.Add("I-SPENT", "account "+from.ID.String()+": "+wrong)
		}
	}
	return findings
}

// awaitHolds returns when no hold is left, or the sweeper has had time for all of
// them. Those that are left then are found by the audit.
func awaitHolds(ctx context.Context, t *loadtest.Trial) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return // the audit finds those that are left
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for end := time.Now().Add(loadtest.LiveBound(t.TTL())); time.Now().Before(end); {
		n, err := invariant.Number(ctx, conn, `SELECT count(*) FROM transfers WHERE state = 'reserved'`)
		if err == nil && n == 0 || !fault.Wait(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// spendAll says what went wrong; "" is nothing.
func spendAll(ctx context.Context, run *loadtest.Run, replica int, from, to Account) string {
	available, err := run.Ask(ctx, replica, "/v1/accounts/"+from.ID.String(), from.Client, "available")
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	send := func(name string, amount int64) (*loadtest.Intent, bool) {
		i := moveIntent(from.Client, name+from.ID.String(), &Move{From: from.ID, To: to.ID, Amount: amount})
		return i, run.Settle(ctx, replica, i)
	}
	if available < 0 {
		return fmt.Sprintf("%d are available", available)
	}
	if available > 0 {
		if all, ok := send("all-", available); !ok {
			return fmt.Sprintf("%d are available, and to send them ended as %s", available, run.History.Last(all.Key))
		}
	}
	if more, _ := send("more-", 1); run.History.Problem(more.Key) != "insufficient-funds" {
		return fmt.Sprintf("all %d were sent, and 1 more ended as %s", available, run.History.Last(more.Key))
	}
	return ""
}
