// Package transfer is the flow of money: 64 clients who send at the same moment, again and
// again. Each owns an account; all of them transfer from or to 8 hot accounts, which are
// short of money and pay each other in opposite directions. Holds are posted and voided at
// the same moment, about when they expire, while a sweeper runs beside the replicas. No
// money may be lost or made.
package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/locking/invariant"
	"shop/transfer"
)

// The faults of transfer's stores.
const (
	LateWrite    loadtest.Fault = "late-write"
	LeaseRevoked loadtest.Fault = "lease-revoked"
	LeaderKill   loadtest.Fault = "leader-kill"
	NoQuorum     loadtest.Fault = "no-quorum"
	PGRestart    loadtest.Fault = "pg-restart"
	CommitCut    loadtest.Fault = "commit-cut"
)

// evidence is what a number of the report counts.
var evidence = map[string]string{
	"drift":              transfer.Invariants.Numbers[0].Means,
	"fence_refused":      "writes with an older fence than the row has seen",
	"swept":              "holds that replicas found over and ended",
	"late_writes":        "writes delivered after a newer holder had written",
	"late_revoked":       "of these, from a replica that did not know yet that its lease was revoked",
	"late_stopped":       "of these, from a replica that stood still until its lease was over",
	"late_refused":       "of these, refused by the guard",
	"late_committed":     "of these, committed",
	"moved":              "transfers that moved money",
	"short":              "requests refused for lack of funds",
	"leases_revoked":     "leases revoked by an operator",
	"members_killed":     "members of the lock service killed",
	"quorum_losses":      "times the lock service lost its quorum",
	"pg_restarts":        "times PostgreSQL was stopped at once and started again",
	"commits_cut_before": "connections cut before their COMMIT reached the server",
	"commits_cut_after":  "connections cut after their COMMIT reached the server",
	"holds_posted":       "holds that were posted",
	"holds_voided":       "holds that were voided",
	"holds_expired":      "holds that expired",
}

// New is the flow of money.
func New() *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "transfer", Number: "drift", During: "T1-DURING", Leftover: "T6", Guard: "CHECK (balance >= held)",
		Plan: NewPlan,
		Workload: func(p loadtest.Plan) string {
			return fmt.Sprintf("%d transfers of %d clients at %d hot accounts", len(p.Intents), p.Clients, hot)
		},
		Watch: func(ctx context.Context, t *loadtest.Trial) ([]loadtest.Sample, error) {
			return loadtest.WatchSQL(ctx, t.Postgres, moneySQL, t.History.Now)
		},
		FollowUp:     settle,
		Postcheck:    spend,
		Audit:        audit,
		Inconclusive: inconclusive,
		Faults: []loadtest.StoreFaults{
			{Store: "etcd", Faults: []loadtest.Fault{LateWrite, loadtest.Pause, LeaseRevoked, LeaderKill, NoQuorum}},
			{Store: "postgres", Faults: []loadtest.Fault{PGRestart, CommitCut}},
		},
		Outages: []loadtest.Fault{NoQuorum},
		Least:   map[loadtest.Fault]int{loadtest.Pause: 10, LateWrite: 7},
		// A process that dies in the queues of all hot accounts leaves them locked for a TTL,
		// eight times: the requests of that time have to be caught up with.
		Stretch: map[loadtest.Fault]int{loadtest.Crash: 8},
		Quick: func(s loadtest.Scenario) bool {
			return slices.Contains([]string{
				"naive/none", "lease-id-fence/none", "row/none",
				"etcd-unfenced/late-write", "etcd-fence-only/late-write",
				"etcd-fenced/none", "etcd-fenced/late-write", "etcd-fenced/commit-cut",
			}, s.Strategy+"/"+string(s.Fault))
		},
		Counters: map[string]map[string]string{"transfer_events_total": {
			"fence_refused": "fence_refused", "guard_tripped": "guard_tripped", "retried": "retried",
			"ambiguous": "ambiguous", "resolved": "resolved", "unavailable": "unavailable", "swept": "swept",
		}},
		Invariants: slices.Concat(transfer.Invariants.Invariants, []invariant.Invariant{
			{Code: "T1-DURING", Name: "money-conserved-during", Means: "T1 in every sample while the load runs; no balance is below what it holds, and all are what their entries say"},
			{Code: "T6", Name: "no-lock-left", Means: "no lock is left behind, within its TTL, when no process is left to hold it"},
			{Code: "I-HOLD", Name: "one-end-per-hold", Means: "of post, void and expiry exactly one wins, and it is the one that was answered; a hold that has ended holds nothing"},
			{Code: "I-RIGHT", Name: "authorization", Means: "without a fault no holder of a lock is refused"},
			{Code: "I-SPENT", Name: "all-spendable", Means: "all that is available can be spent, and not one more; an account that has enough for all is never refused"},
		}),
		Evidence: evidence,
		Summary:  summary,
		Curves:   []loadtest.Curve{loadtest.Drift},
		Words: loadtest.Words{
			Claim:    "no money was lost or made",
			Workload: "64 clients who send at the same moment, again and again, and all have to do with 8 accounts that are short of money",
			Done:     "done",
			Levels:   "Minor units by which balances differ from what their entries add up to. It must be 0 all along.",
			Note:     "Drift is money that balances have, or lack, and no entry accounts for.",
		},
	}
	// The controls must be violated, or show that a violation comes from its fault:
	// etcd-unfenced holds as long as no holder is late. T3 sees every loss. (T1 does not: a
	// payer and a payee may lose alike.)
	f.Controls = []loadtest.Scenario{
		control(f, "naive", loadtest.NoFault),
		control(f, "lease-id-fence", loadtest.NoFault, "I-RIGHT"),
		f.Safe("etcd-unfenced", loadtest.NoFault),
		control(f, "etcd-unfenced", LateWrite),
		control(f, "etcd-unfenced", LeaseRevoked),
	}
	return f
}

// kept is what the mistakes of the controls do not touch: whatever becomes of a
// balance, a transfer has its key and its two entries in one transaction.
var kept = []string{"I-REJ", "I-ONCE", "T2"}

// control is one that refuses some keys for ever: lease-id-fence those whose lease is the
// smaller, and all of them a hold whose money was lost. So it is not waited for long.
func control(f *loadtest.Flow, strategy string, fault loadtest.Fault, also ...string) loadtest.Scenario {
	s := f.Control(strategy, fault, kept, append(also, "T3")...)
	s.Patience = 2 * time.Second
	return s
}

// moneySQL is one statement, so it sees one snapshot: two sums in two statements
// would see two moments.
const moneySQL = `
SELECT a.currency, sum(a.balance)::bigint, sum(a.opening)::bigint
FROM accounts a
GROUP BY a.currency
UNION ALL
SELECT 'accounts below what they hold', count(*) FILTER (WHERE balance < held), 0
FROM accounts
UNION ALL
SELECT '` + loadtest.DriftLevel + `', COALESCE(sum(abs(a.balance - a.opening - COALESCE(l.moved, 0))), 0)::bigint, 0
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id
ORDER BY 1`

// summary counts the transfers of the load, without those of the postcheck.
func summary(r loadtest.Result) string {
	var moved, short, holds int
	for _, record := range r.Records[:r.Requests] {
		switch {
		case record.Action == Pay && record.Outcome == loadtest.OK, record.Action == PostHold && record.Outcome == loadtest.OK:
			moved++
		case record.Action == Reserve && record.Outcome == loadtest.OK:
			holds++
		case record.Refused("insufficient-funds"):
			short++
		}
	}
	parts := []string{fmt.Sprintf("%d moved", moved), fmt.Sprintf("%d refused for lack of funds", short), fmt.Sprintf("%d holds", holds)}
	if n := r.Violations["drift"]; n > 0 {
		parts = append(parts, fmt.Sprintf("balances are off by %d in all", n))
	}
	for _, refused := range []struct{ evidence, what string }{
		{"late_refused", "late writes"}, {"rightful_refused", "rightful holders"}, {"fence_refused", "old fences"},
	} {
		if n := r.Evidence[refused.evidence]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s refused", n, refused.what))
			break
		}
	}
	return strings.Join(parts, ", ")
}

// audit reads from the database where the money is.
func audit(ctx context.Context, t *loadtest.Trial, records []loadtest.Record) (a loadtest.Audited, err error) {
	conn, err := t.Quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := LoadMoves(ctx, conn, Accounts(t.Plan), records, t.Clients); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, slices.Concat(transfer.Invariants.Checks, MoveChecks), invariant.SQL(conn)); err != nil {
		return a, err
	}
	a.Findings.Add("I-SPENT", wronglyRefused(t.Loaded(records), Accounts(t.Plan))...)
	a.Findings.Add("I-RIGHT", turnedAway(t)...)
	if a.Evidence, err = ends(ctx, conn); err != nil {
		return a, err
	}
	for _, record := range records {
		if record.Refused("insufficient-funds") {
			a.Evidence["short"]++
		}
	}
	a.Number, err = invariant.Number(ctx, conn, driftSQL)
	return a, err
}

// turnedAway says that rightful holders were refused: there was no fault, and none of
// them lost its lock on the way.
func turnedAway(t *loadtest.Trial) []string {
	counts := t.Replicas.Counters.Sum()
	if n := counts["fence_refused"]; t.Scenario.Fault == loadtest.NoFault && counts["lock_lost"] == 0 && n > 0 {
		return []string{fmt.Sprintf("%d holders of a lock, refused although none was late", n)}
	}
	return nil
}

// ends counts what moved, and the holds by how they ended: whether the three met at all.
func ends(ctx context.Context, conn *pgx.Conn) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, state := range []string{"posted", "voided", "expired"} {
		n, err := invariant.Number(ctx, conn, `SELECT count(*) FROM transfers WHERE expires_at IS NOT NULL AND state = '`+state+`'`)
		if err != nil {
			return nil, err
		}
		counts["holds_"+state] = n
	}
	moved, err := invariant.Number(ctx, conn, `SELECT count(*) FROM transfers WHERE state = 'posted'`)
	counts["moved"] = moved
	return counts, err
}

// wronglyRefused lists the transfers that were refused for lack of funds
// although the account had enough for everything that it was asked for.
func wronglyRefused(records []loadtest.Record, accounts []Account) (wrong []string) {
	for _, r := range records {
		if accounts[r.Client].Ample && r.Refused("insufficient-funds") {
			wrong = append(wrong, r.Key+": refused, although there was money for all of them")
		}
	}
	return wrong
}
