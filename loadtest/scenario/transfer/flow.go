// SPDX-License-Identifier: MIT

// Package transfer is the flow of money: 64 clients send bursts of transfers, all at the same
// moment. Each client owns an account. Every transfer is from or to one of 8 hot accounts, which
// are short of money and pay each other in opposite directions. Holds are posted and voided at
// the same moment, around the time at which they expire, while a sweeper runs beside the
// replicas. No money may be lost or created.
//
// The accounts are four groups of 16, each with two hot ones; a transfer stays in its group. Between
// transfers, clients read their accounts, and each of their transfers, before and after it ends. One
// transfer in twenty is abandoned after "busy". One in fifty uses the key of another client's transfer,
// which is under way or over. For every forty transfers there is one invalid request: it takes from or
// reads another client's account, names an object that does not exist, names one account twice, or names
// another currency.
//
//   - One transfer in forty each is read by another client, has its key reused for another amount, or
//     has its key reused for its own void.
//   - One hold in six is posted twice at once, and one in six is voided twice, instead of once each.
//   - One hold in eight each is posted by another client, voided by another client, posted beyond its
//     amount, posted again after its end, or voided again after its end.
package transfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/etcdfault"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/fault/replicafault"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
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

// evidence describes the numbers of the report.
var evidence = map[string]string{
	"drift":              transfer.Invariants.Numbers[0].Means,
	"fence_refused":      "writes with an older fence than the row has seen",
	"swept":              "expired holds that replicas ended",
	"late_writes":        "writes delivered after a newer holder had written",
	"late_revoked":       "of these, from a replica that did not know yet that its lease was revoked",
	"late_stopped":       "of these, from a replica that was stopped until its lease had expired",
	"late_refused":       "of these, refused by PostgreSQL: an SQL error, or no row matched",
	"late_committed":     "of these, committed",
	"fence_ignored":      "of these, committed although the account had a newer fence",
	"moved":              "transfers that moved money",
	"short":              "requests refused for lack of funds",
	"leases_revoked":     "leases revoked by an operator",
	"members_killed":     "members of the lock service killed",
	"quorum_losses":      "times the lock service lost its quorum",
	"pg_restarts":        "times PostgreSQL was killed and started again",
	"commits_cut_before": "connections cut before their COMMIT reached the server",
	"commits_cut_after":  "connections cut after their COMMIT reached the server",
	"batches_cut":        "of these, of a batch of transfers under one lease",
	"fence_kept":         "transactions with the fence of such a lease, after the cut",
	"holds_posted":       "holds that were posted",
	"holds_voided":       "holds that were voided",
	"holds_expired":      "holds that expired",
}

// New returns the flow of money.
func New() *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "transfer", Number: "drift", During: "T1-DURING", Leftover: "T6",
		Plan: NewPlan,
		Watch: func(ctx context.Context, t *loadtest.Trial) ([]judge.Sample, error) {
			return judge.WatchSQL(ctx, t.Postgres, moneySQL(money.Accounts(t.Plan)), t.Look)
		},
		FollowUp:  followUp,
		Postcheck: spend,
		Audit:     audit,
		Linear:    linearize,
		Locked:    loadtest.Using("etcd", loadtest.StrategiesOf(transfer.Strategies())),
		Batch:     loadtest.StepsOf([]transfer.Step{transfer.AfterGuard, transfer.AfterKey, transfer.BeforeCommit, transfer.AfterCommit, transfer.AfterGuard, transfer.BeforeCommit}),
		Steps:     loadtest.StepsOf(transfer.Steps()),
		Faults:    faults,
		Timing: loadtest.Timing{
			ControlGrace: 2 * time.Second,
			Quick: []string{
				"naive/none", "lease-id-fence/none", "token-per-transfer/none", "row/none",
				"etcd-unfenced/late-write", "etcd-fence-only/late-write",
				"etcd-fenced/none", "etcd-fenced/late-write", "etcd-fenced/commit-cut",
			},
		},
		Answers: loadtest.Answers{
			Refuses: map[traffic.Action][]string{Pay: {money.Short}, Reserve: {money.Short}, PostHold: {"expired", "already-settled"}, VoidHold: {"expired", "already-settled"}},
			Stored:  []string{money.Short, "expired", "already-settled"},
			Moments: map[traffic.Action]string{Pay: "created_at", Reserve: "created_at", PostHold: "ended_at", VoidHold: "ended_at"},
		},
		Counted: []string{"fence_refused", "guard_tripped", "retried", "ambiguous", "resolved", "unavailable", "swept"},
		Invariants: slices.Concat(transfer.Invariants.Invariants, []invariant.Invariant{
			{Code: "T1-DURING", Name: "money-conserved-during", Means: "T1 in every sample while the load runs; no balance is below its held amount, and every balance is the sum of its entries"},
			{Code: "T5", Name: "lease-given-up", Means: "after a COMMIT without an answer, no batch uses the fence of its lease again"},
			{Code: "T6", Name: "no-lock-left", Means: "a TTL after the last process has ended, no lock is left"},
			{Code: "I-HOLD", Name: "one-end-per-hold", Means: "exactly one of post, void and expiry ends a hold, and it is the acknowledged one, in time by the clients' clock; an ended hold holds nothing"},
			{Code: "I-RIGHT", Name: "no-holder-refused", Means: "without a fault no holder of a lock is refused"},
			money.AllSpendable,
		}),
		Undisturbed: []string{"I-RIGHT"},
		Evidence:    evidence,
		Shown: money.Shown("CHECK (balance >= held)",
			"64 clients who send bursts at the same moment, all from or to 8 accounts that are short of money, read in between, and send forbidden requests",
			func(p traffic.Plan) string {
				return fmt.Sprintf("%d transfers by %d clients over %d hot accounts", len(p.Load()), p.Clients, hot)
			}, summary),
	}
	// The controls must be violated, or show that the fault causes the violation:
	// etcd-unfenced is safe as long as no holder is late. T3 detects every loss. (T1 does not: a
	// payer and a payee may lose the same amount.) Under the controls some keys
	// are refused for ever: under lease-id-fence those with the smaller lease id, under all
	// controls the holds whose money was lost. ControlGrace therefore bounds the wait for them.
	f.Controls = []loadtest.Scenario{
		f.Control("naive", loadtest.NoFault, kept, "T3"),
		f.Control("lease-id-fence", loadtest.NoFault, kept, "I-RIGHT", "T3"),
		f.Control("token-per-transfer", loadtest.NoFault, []string{"T1", "T1-DURING", "T2", "T3"}, "I-ONCE"),
		f.Safe("etcd-unfenced", loadtest.NoFault),
		f.Control("etcd-unfenced", LateWrite, kept, "T3"),
		f.Control("etcd-unfenced", LeaseRevoked, kept, "T3").NeedsPause(),
		f.Control("etcd-fenced", loadtest.PrimaryLostAsync, []string{"T1", "T1-DURING", "T2", "T3"}, "I-ACK"),
	}
	cells.Add(f)
	return f
}

// kept lists the invariants that hold in spite of the controls' mistakes: even with a wrong
// balance, a transfer writes its key and its two entries in one transaction.
var kept = []string{"I-REJ", "I-ONCE", "T2"}

// moneySQL is one statement, so it sees one snapshot: two sums in two statements
// would see two moments. The sums must equal the plan's openings.
func moneySQL(opened []money.Account) string {
	var rows []string
	for _, a := range opened {
		rows = append(rows, fmt.Sprintf("('%s'::uuid, '%s', %d::bigint)", a.ID, a.Currency, a.Opening))
	}
	return `
WITH opened (id, currency, opening) AS (VALUES ` + strings.Join(rows, ", ") + `)
SELECT COALESCE(a.currency, o.currency), COALESCE(sum(a.balance), 0)::bigint, COALESCE(sum(o.opening), 0)::bigint
FROM accounts a
FULL JOIN opened o ON o.id = a.id AND o.currency = a.currency
GROUP BY 1
UNION ALL
SELECT 'accounts below what they hold', count(*) FILTER (WHERE balance < held), 0
FROM accounts
UNION ALL
SELECT '` + money.DriftLevel + `', (` + driftSQL("opened") + `), 0
ORDER BY 1`
}

// serverTime is how long a server is unavailable when a nemesis kills it and starts it again.
const serverTime = 6 * time.Second

// slower divides the rate of the load under a fault.
const slower = 2

// revoked is the pause, in units of Setup.Guard, in which the next holder overtakes one whose lease was revoked: between its
// last check of ctx and the guard, which refuses it, and between its read and its write, where a holder without a guard
// overwrites what the next one has written.
const revoked = 5

// ofCluster makes a fault of a private cluster of etcd.
func ofCluster(of func(*clientv3.Client, []fault.Member) fault.Fault) loadtest.Setup {
	return loadtest.Setup{Etcd: loadtest.EtcdThree, Inject: func(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
		client, err := servers.Etcd(t.Scenario)
		if err != nil {
			return nil, err
		}
		members, err := servers.Members(loadtest.EtcdThree)
		return of(client, members), err
	}}
}

// faults lists the faults of a transfer's stores and replicas: how each is made, and the evidence required.
var faults = slices.Concat([]loadtest.FaultSpec{
	{Fault: loadtest.NoFault, Needs: []loadtest.Need{
		{Evidence: "moved", Expect: loadtest.Safe, Why: "no money moved"},
		{Evidence: "short", Expect: loadtest.Safe, Why: "no account was short of money"},
		{Evidence: "holds_posted", Expect: loadtest.Safe, Why: "no hold was posted"},
		{Evidence: "holds_voided", Expect: loadtest.Safe, Why: "no hold was voided"},
		{Evidence: "holds_expired", Expect: loadtest.Safe, Why: "no hold expired"},
	}},
	// Most faults have half of the rate, or a stretched load. A transfer of etcd-fenced is two commits of etcd and one of
	// PostgreSQL, one after the other. At the full rate the queues of the hot accounts could last longer than the clients'
	// patience, as on a slow machine after an outage. Where a server dies, the load is long enough for a calm after each
	// death. A commit of three members takes longer than one of a member alone, so their faults have an eighth of the rate.
	// A late write has a quarter: a burst for one account, of which one transfer waits for the late one, lasts seconds.
	{Fault: LateWrite, Store: "etcd", Least: 7, Slower: 2 * slower, Setup: loadtest.Setup{Proxied: true, Inject: Late}, Needs: []loadtest.Need{
		{Evidence: "late_writes", Why: "no write was delivered after a newer holder had written"},
		{Evidence: "late_stopped", Why: "no late write came from a replica that was stopped until its lease had expired"},
		{Evidence: "late_refused", Expect: loadtest.Safe, Why: "no late write was refused"},
		{Evidence: "late_committed", Expect: loadtest.Violated, Why: "no late write was committed"},
	}},
	{Fault: loadtest.Pause, Store: "etcd", Least: 10, Slower: slower, Setup: loadtest.Setup{Inject: func(_ loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
		return replicafault.Pauses{Replicas: t.Replicas, TTL: t.TTL()}, nil
	}}, Needs: []loadtest.Need{
		{Evidence: "pauses", Least: 2, Why: "fewer than 2 pauses"},
		{Evidence: "leases_ended", Why: "etcd ended no lease of a stopped replica"},
	}},
	{Fault: LeaseRevoked, Store: "etcd", Slower: slower, Setup: loadtest.Setup{Begin: revoked, Guard: revoked, Inject: func(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
		client, err := servers.Etcd(t.Scenario)
		return etcdfault.LeasesRevoked{Client: client, Prefix: t.Prefix, Every: t.TTL() / 8}, err
	}}, Needs: []loadtest.Need{
		{Evidence: "leases_revoked", Least: 5, Why: "fewer than 5 leases were revoked"},
		// combined tries a refused batch again under a new lease: its clients do not see the refusal.
		{Evidence: "stale_answers", Of: "etcd-fenced", Why: "no answer says that a write under a revoked lease was refused"},
		{Evidence: "stale_answers", Of: "etcd-fence-only", Why: "no answer says that a write under a revoked lease was refused"},
	}},
	{Fault: LeaderKill, Store: "etcd", Least: 8, Slower: 4 * slower, Setup: ofCluster(func(client *clientv3.Client, members []fault.Member) fault.Fault {
		return etcdfault.LeaderKill{Client: client, Members: members, Times: 2}
	}), Needs: []loadtest.Need{{Evidence: "elections", Why: "no other leader was elected"}}},
	{Fault: NoQuorum, Store: "etcd", Least: 8, Slower: 4 * slower, Setup: ofCluster(func(client *clientv3.Client, members []fault.Member) fault.Fault {
		return etcdfault.NoQuorum{Client: client, Members: members, Times: 2, Part: 0.4}
	}), Needs: []loadtest.Need{
		{Evidence: "quorum_losses", Why: "the quorum was not lost"},
		{Evidence: "refused_meanwhile", Why: "no request was refused while the lock service did not answer"},
		{Evidence: "lock_calls_after", Why: "no lock was requested from etcd after the quorum was back"},
	}},
	{Fault: PGRestart, Store: "postgres", Least: 8, Slower: slower, Setup: loadtest.Setup{Postgres: "postgres", Inject: func(servers loadtest.Servers, _ *loadtest.Trial) (fault.Fault, error) {
		members, err := servers.Members("postgres")
		if err != nil {
			return nil, err
		}
		return fault.Restart{Server: members[0].Server, Name: "postgres", Evidence: "pg_restarts", Times: 3}, nil
	}}, Needs: []loadtest.Need{
		{Evidence: "pg_restarts", Why: "PostgreSQL was not restarted"},
		{Evidence: "disturbed", Why: "no request was affected by the restart"},
	}},
	{Fault: CommitCut, Store: "postgres", Slower: slower, Setup: loadtest.Setup{Proxied: true, Inject: func(servers loadtest.Servers, _ *loadtest.Trial) (fault.Fault, error) {
		return pgfault.CommitCut{Proxies: servers.PostgresProxies(), Every: 100 * time.Millisecond}, nil
	}}, Needs: []loadtest.Need{
		{Evidence: "commits_cut_before", Why: "no connection was cut before its COMMIT arrived"},
		{Evidence: "commits_cut_after", Why: "no connection was cut after its COMMIT"},
		{Evidence: "decided_after_cut", Why: "no key whose COMMIT was cut was decided"},
		{Evidence: "batches_cut", Least: 5, Of: loadtest.Combined, Why: "fewer than 5 batches had their COMMIT cut"},
	}},
	// A process that dies in the queues of all hot accounts leaves them locked for a little more
	// than a TTL. The load is stretched, so that after each of the eight kills there is time to catch
	// up. Without that, nothing would succeed for ten seconds, which breaks I-GOODPUT.
	loadtest.CrashSpec(loadtest.Need{Evidence: "cut_off", Why: "no request was cut off by a kill"}).At(0, 24, 0),
	// As under Crash: without time to catch up, the next replica could be killed as soon as it has the lock of the last one,
	// and nothing would succeed for two TTLs.
	loadtest.CombinerKilledSpec().At(0, 24, 0), loadtest.CombinerPausedSpec().At(10, 0, slower), loadtest.HangUpSpec(1),
	loadtest.NemesisSpec(serverTime, 5, loadtest.Setup{Postgres: "postgres", Etcd: loadtest.EtcdThree, Proxied: true, Begin: revoked}),
	loadtest.AllKilledSpec(loadtest.AllKilled, serverTime, 12, 4*slower, loadtest.Setup{Postgres: "postgres", Etcd: loadtest.EtcdThree}),
}, loadtest.StandbySpecs(serverTime, 13, 10, "etcd-fence-only"))

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

// partner returns the account to which account i sends its money: the next one of its group. The accounts behind those
// of the clients are in pairs of rows, which pay each other.
func partner(accounts []money.Account, i int) money.Account {
	if i < clients {
		return accounts[(i+groups)%clients]
	}
	return accounts[clients+(i-clients)^groups]
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

// summary counts the transfers of the load, without the postcheck's.
func summary(r loadtest.Result) string {
	var moved, short, holds int
	for _, record := range r.Records[:r.Loaded] {
		switch {
		case record.Action == Pay && record.Outcome == traffic.OK, record.Action == PostHold && record.Outcome == traffic.OK:
			moved++
		case record.Action == Reserve && record.Outcome == traffic.OK:
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
		{"late_refused", "late writes"}, {"rightful_refused", "rightful holders"}, {"stale_answers", "old fences"},
	} {
		if n := r.Evidence[refused.evidence]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s refused", n, refused.what))
			break
		}
	}
	return strings.Join(parts, ", ")
}
