package loadtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
	"shop/transfer"
)

// Transfer is the flow of money: none is lost, none is made.
var Transfer = Flow{
	Name: transferFlow, Number: "drift", During: "T1-DURING", Leftover: "T6", Guard: "CHECK (balance >= held)",
	Plan: NewTransferPlan,
	Crowd: func(p Plan) string {
		return fmt.Sprintf("%d transfers of %d clients at %d hot accounts", len(p.Intents), p.Clients, hot)
	},
	Watch:    watchMoney,
	Follow:   settle,
	Finale:   spend,
	Audit:    auditMoney,
	Void:     voidMoney,
	Controls: moneyControls,
	Faults: map[string][]Fault{
		"etcd":     {LateWrite, Pause, LeaseRevoked, LeaderKill, NoQuorum},
		"postgres": {PGRestart, CommitCut},
	},
	Least: map[Fault]int{Pause: 10, LateWrite: 7},
	// Who dies in the queues of all hot accounts leaves them locked for a TTL, eight
	// times: what comes meanwhile has to be caught up with.
	Stretch: map[Fault]int{Crash: 8},
	Quick: func(s Scenario) bool {
		return slices.Contains([]string{
			"naive/none", "lease-id-fence/none", "row/none",
			"etcd-unfenced/late-write", "etcd-fence-only/late-write",
			"etcd-fenced/none", "etcd-fenced/late-write", "etcd-fenced/commit-cut",
		}, s.Strategy+"/"+string(s.Fault))
	},
	Told: toldOfMoney,
	Plot: Result.Drift,
	Words: Words{
		Claim:  "no money was lost or made",
		Crowd:  "64 clients who send at the same moment, again and again, and all have to do with 8 accounts that are short of money",
		Done:   "done",
		Levels: "Minor units by which balances differ from what their entries add up to. It must be 0 all along.",
		Note:   "Drift is money that balances have, or lack, and no entry accounts for.",
	},
}

// moneyKept is what the mistakes of the controls do not touch: whatever becomes
// of a balance, a transfer has its key and its two entries in one transaction.
var moneyKept = []string{"I-REJ", "I-ONCE", "T2"}

// moneyControls are the scenarios that must be violated, or that show that a
// violation comes from its fault: etcd-unfenced holds as long as nobody is late.
// T3 sees every loss. (T1 does not: a payer and a payee may lose alike.)
var moneyControls = []Scenario{
	moneyControl("naive", NoFault),
	moneyControl("lease-id-fence", NoFault, "I-RIGHT"),
	safe(transferFlow, "etcd-unfenced", NoFault),
	moneyControl("etcd-unfenced", LateWrite),
	moneyControl("etcd-unfenced", LeaseRevoked),
}

// moneyControl is one that refuses some keys for ever: lease-id-fence those whose
// lease is the smaller, and all of them a hold whose money has got lost. So
// there is little patience with them.
func moneyControl(strategy string, fault Fault, also ...string) Scenario {
	s := control(transferFlow, strategy, fault, moneyKept, append(also, "T3")...)
	s.Patience = 2 * time.Second
	return s
}

// moneySteps are those of a transfer at which a replica is killed, one after the other.
var moneySteps = []string{
	"before-acquire", "after-acquire", "after-begin", "after-guard", "after-key", "before-commit", "after-commit", "after-release",
}

// toldOfMoney counts the transfers of the load; those of the finale are none of it.
func toldOfMoney(r Result) string {
	var moved, short, holds int
	for _, record := range r.Records[:r.Requests] {
		switch {
		case record.Action == Pay && record.Outcome == OK, record.Action == PostHold && record.Outcome == OK:
			moved++
		case record.Action == Reserve && record.Outcome == OK:
			holds++
		case record.refused("insufficient-funds"):
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

// refused tells whether a key was decided by this refusal.
func (r Record) refused(problem string) bool {
	return r.Outcome == Rejected && r.problem() == problem
}

// auditMoney asks the database where the money is.
func auditMoney(ctx context.Context, r *run, records []Record) (a Audited, err error) {
	conn, err := r.quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := LoadMoves(ctx, conn, r.plan.Accounts, records, r.clients); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, slices.Concat(transfer.Invariants, MoveChecks), invariant.SQL(conn)); err != nil {
		return a, err
	}
	a.Findings.Add("I-SPENT", wronglyRefused(records[:r.loaded], r.plan.Accounts)...)
	a.Findings.Add("I-RIGHT", r.turnedAway()...)
	if a.Evidence, err = ends(ctx, conn); err != nil {
		return a, err
	}
	for _, record := range records {
		if record.refused("insufficient-funds") {
			a.Evidence["short"]++
		}
	}
	a.Number, err = invariant.Number(ctx, conn, transfer.DriftSQL("proof_accounts"))
	return a, err
}

// turnedAway says that holders were refused who had every right: there was no
// fault, and none of them lost its lock on the way.
func (r *run) turnedAway() []string {
	counts := r.replicas.Counters.Sum()
	if n := counts["fence_refused"]; r.scenario.Fault == NoFault && counts["lock_lost"] == 0 && n > 0 {
		return []string{fmt.Sprintf("%d holders of a lock, refused although nobody was late", n)}
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
func wronglyRefused(records []Record, accounts []Account) (wrong []string) {
	for _, r := range records {
		if accounts[r.Client].Ample && r.refused("insufficient-funds") {
			wrong = append(wrong, r.Key+": refused, although there was money for all of them")
		}
	}
	return wrong
}
