// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// audit compares the records of the clients with the stores, which no process changes any more.
func (t *Trial) audit(ctx context.Context) (Result, error) {
	records, flow := t.History.Records(), t.Scenario.Flow
	durable := t.durable(records)
	audited, err := flow.Audit(ctx, t, durable)
	if err != nil {
		return Result{}, err
	}
	findings := audited.Findings
	findings.Add("I-ONCE", judge.Diverged(records)...)
	t.exits(findings)
	if t.failed == nil { // otherwise a server may still be gone, and only what is stored is judged
		findings.Merge(t.postcheck)
		findings.Add("I-LIVE", t.lifeless(records)...)
		findings.Merge(t.keptUp(records))
	}
	findings.Add("I-DENY", judge.NotRefused(records)...)
	if flow.Refuses != nil {
		findings.Add("I-ALLOW", judge.RefusedWrites(records, flow.Refuses)...)
	}
	findings.Add("I-BODY", judge.RefusedReads(records)...)
	findings.Add("I-CLOCK", t.History.Untimely(records, flow.Moments)...)
	findings.Add(flow.During, judge.Apart(t.Samples)...)
	t.judged(findings, records)
	var unshown []string
	if e := t.Scenario.Experiment; e != nil {
		var broken invariant.Findings
		broken, unshown = e.Judge(t.Scenario.Expect, t.Tried)
		findings.Merge(broken)
	}
	if flow.Leftover != "" {
		findings.Add(flow.Leftover, t.left...)
	}
	result := t.result(records, audited.Evidence, unshown)
	result.Findings, result.Story = findings, audited.Story
	if err := t.linearize(ctx, &result, durable, audited); err != nil {
		return Result{}, err
	}
	result.Violations = findings.Counts()
	result.Violations[flow.Number] = audited.Number
	result.Verdict, result.AsExpected = Judge(t.Scenario, result.Violations, result.Inconclusive)
	return result, nil
}

// judged adds the invariants that are judged only under some faults, or of some strategies: one that is not judged must not
// be reported as kept.
func (t *Trial) judged(findings invariant.Findings, records []traffic.Record) {
	if _, watched := t.Monitored["lock_calls"]; watched && t.Scenario.locked() {
		findings.Add("I-LOCKED", t.unlocked(records)...)
	}
	if t.Scenario.Fault == StandbyGone {
		findings.Add(ReplicatedInvariant.Code, t.unreplicated(records)...)
	}
	if len(t.AtRest) > 0 {
		findings.Add(LeakInvariant.Code, leaks(t.AtRest)...)
	}
	if t.Scenario.Fault == NoFault {
		findings.Add("I-ERROR", judge.Internal(records)...)
	}
}

// exits adds the replicas that exited by themselves. (Without one, I-LIVE may not be judged.)
func (t *Trial) exits(findings invariant.Findings) {
	if t.Replicas == nil {
		return // none was started
	}
	if exits := t.Replicas.Exits(); len(exits) > 0 {
		findings.Add("I-LIVE", exits...)
	}
}

// quiet connects to the database and waits until no other connection to it is left.
func (t *Trial) quiet(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return nil, err
	}
	if err := site.WaitQuiet(ctx, conn, site.QuietWait); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// leftovers waits until the locks of killed processes have expired, and keeps in t.left those that have not.
func (t *Trial) leftovers(ctx context.Context) (err error) {
	if t.Scenario.Flow.Leftover == "" || t.proof.Leftovers == nil {
		return nil
	}
	for end := time.Now().Add(judge.LiveBound(t.TTL())); ; {
		t.left, err = t.proof.Leftovers(ctx, t)
		if err != nil || len(t.left) == 0 || time.Now().After(end) || !fault.Wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// Grace bounds the time after the load in which every key must be decided, and the postcheck.
func (t *Trial) Grace() time.Duration {
	return cmp.Or(t.Scenario.Grace, t.proof.Grace, traffic.Grace)
}

// TTL is the time to live of the flow's locks.
func (t *Trial) TTL() time.Duration { return t.proof.LockTTL[t.Scenario.Flow.Name] }

// Keep reports whether the databases are kept after the trial.
func (t *Trial) Keep() bool { return t.proof.Keep }

// Loaded returns the records of the load, without those of the postcheck.
func (t *Trial) Loaded(records []traffic.Record) []traffic.Record { return records[:t.loaded] }

// lifeless lists what breaks I-LIVE, but for replicas that exited by themselves.
func (t *Trial) lifeless(records []traffic.Record) []string {
	bound := t.Scenario.Flow.Bound(t.Scenario.Fault, t.TTL())
	bounds := judge.Always(bound)
	if t.Scenario.Fault == Nemesis {
		bounds = judge.Among(t.events, t.History.Epoch, bound)
	}
	return slices.Concat(t.hung, judge.Stalls(t.History, records, t.events, bounds), t.silent, judge.Undecided(records))
}

// unlocked reports that keys had an effect without a lock, by the number of calls of the lock service. While that is unavailable,
// keys may; but a strategy that never requests a lock has none to lose, so one call is needed even then. If keys share a
// lock, they need one for each object that they contend for.
func (t *Trial) unlocked(records []traffic.Record) []string {
	asked := t.Monitored["lock_calls"]
	_, done, _ := tally(t.Loaded(records))
	if t.Scenario.Strategy == Combined {
		done = contended(t.Loaded(records))
	}
	done *= max(1, t.Scenario.Flow.LockCalls)
	if t.Scenario.Flow.spec(t.Scenario.Fault).Outage {
		done = min(done, 1)
	}
	if asked >= int64(done) {
		return nil
	}
	return []string{fmt.Sprintf("the locks that were needed take %d calls of the lock service, but there were only %d", done, asked)}
}

// contended counts the objects for which a key had an effect.
func contended(records []traffic.Record) int {
	objects := map[string]bool{}
	for _, r := range records {
		for _, object := range r.Contends {
			if r.Outcome == traffic.OK {
				objects[object] = true
			}
		}
	}
	return len(objects)
}

// keptUp judges how the service kept up with the load, and keeps the figures in t.pace.
func (t *Trial) keptUp(records []traffic.Record) invariant.Findings {
	pace := t.Scenario.Flow.pace(t.Scenario.Fault, t.TTL())
	findings, figures := judge.KeptUp(t.History, t.Loaded(records), t.events, t.duration, pace)
	t.pace = figures
	return findings
}

// result collects the numbers of a trial, without a verdict. The counters of the replicas are added last:
// the reasons for an inconclusive run must not depend on them.
func (t *Trial) result(records []traffic.Record, evidence map[string]int64, unshown []string) Result {
	result := NewResult(t.Scenario, t.Replicas.Len())
	result.measure(records[:t.loaded], t.decided)
	result.Evidence = t.evidence(records)
	maps.Copy(result.Evidence, evidence)
	result.Cells, result.AtRest = t.Tried, t.AtRest
	result.Missed = slices.Concat(InconclusiveReasons(t.Scenario, result.Evidence), traffic.Lagging(result.Latency.Lag))
	result.Inconclusive = slices.Concat(result.Missed, unshown)
	if t.failed != nil {
		result.Missed = append(result.Missed, t.failed.Error())
		result.Inconclusive = result.Missed
	}
	for name, n := range t.Replicas.Counters.Sum() {
		if _, known := result.Evidence[name]; !known {
			result.Evidence[name] = n
		}
	}
	result.Plan, result.Records, result.Events = t.Plan, records, t.events
	result.Epoch, result.Samples, result.Sent = t.History.Epoch, t.Samples, t.sent
	return result
}

// evidence collects all numbers from outside of the replicas that are not violations: of the history, the
// fault, the servers and the network traffic.
func (t *Trial) evidence(records []traffic.Record) map[string]int64 {
	evidence := judge.Evidence(records, t.Replicas.Len(), t.events, t.History.Epoch)
	planned := int64(len(t.Plan.Schedule)+len(records)-len(t.Plan.Intents)) + t.replayed
	evidence["sent_again"], evidence["replayed"] = evidence["attempts"]-planned, t.replayed
	evidence["samples"] = int64(len(t.Samples))
	_, done, _ := tally(t.Loaded(records))
	evidence["done"] = int64(done)
	if t.comesBack() {
		evidence["at_rest"] = int64(len(t.AtRest))
	}
	for _, e := range t.events {
		if e.Replica > 0 && !judge.Struck(records, e, t.History.Epoch) {
			continue // it hit no request
		}
		for name, n := range e.Seen {
			evidence[name] += n
		}
	}
	maps.Copy(evidence, t.Monitored)
	maps.Copy(evidence, t.pace)
	return evidence
}

// SQL is what the audit of a flow in PostgreSQL runs.
type SQL struct {
	// Fill copies the plan and the answers to clients into temporary tables.
	Fill    func(context.Context, *pgx.Conn) error
	Checks  []invariant.Check
	Effects string // lists the effects: see judge.StoredSQL
	Number  string // Flow.Number
	// Then adds what no query finds.
	Then func(context.Context, *pgx.Conn, *Audited) error
}

// AuditSQL audits the trial's database when no other connection to it is left.
func (t *Trial) AuditSQL(ctx context.Context, s SQL) (a Audited, err error) {
	conn, err := t.quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err = s.Fill(ctx, conn); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, s.Checks, invariant.SQL(conn)); err != nil {
		return a, err
	}
	if a.Effects, err = judge.StoredSQL(ctx, conn, s.Effects); err != nil {
		return a, err
	}
	if a.Number, err = invariant.Number(ctx, conn, s.Number); err != nil {
		return a, err
	}
	batches, err := invariant.Number(ctx, conn, togetherSQL)
	if err != nil {
		return a, err
	}
	a.Evidence = map[string]int64{"together": batches}
	err = s.Then(ctx, conn, &a)
	return a, err
}

// togetherSQL counts the transactions that answered several requests.
const togetherSQL = `
SELECT count(*)
FROM (SELECT FROM idempotency_keys GROUP BY xmin::text HAVING count(*) > 1) AS batches`

// FillSummaries copies the answers to clients into the temporary table proof_summaries: a row for each request, with more
// columns of the flow. The times of the history count from epoch.
func FillSummaries(ctx context.Context, conn *pgx.Conn, records []traffic.Record, clients []Credentials, epoch time.Time,
	columns string, more func(traffic.Record) []any,
) error {
	const common = `name text, client_id uuid, key text, action text, sent boolean, outcome text, problem text,
	begun timestamptz, answered timestamptz, made uuid, answer jsonb, `
	return site.FillTable(ctx, conn, "proof_summaries", common+columns, records, func(r traffic.Record) []any {
		begun, answered := r.Times()
		return append([]any{
			r.Key, uuid.UUID(clients[r.Client].ID), r.IdempotencyKey(), string(r.Action), r.Sent(), string(r.Outcome), r.Problem(),
			epoch.Add(begun), epoch.Add(answered), r.Made, traffic.Canonical(r.Answer()),
		}, more(r)...)
	})
}

// KeyChecks returns the checks that each row of a table has a request under its key that is not known to have failed. what
// is such a row, and makes are the actions that make one.
func KeyChecks(table, what, makes string) []invariant.Check {
	return []invariant.Check{
		{
			// Two requests may share a key; one of them is then refused because of the other.
			Name: "I-REJ", Invariant: "I-REJ",
			Means: what + " of a request that was refused, or reported as not done, or never sent",
			Query: `
SELECT made.id::text
FROM ` + table + ` made
JOIN proof_summaries summary
  ON summary.client_id = made.client_id AND summary.key = made.idempotency_key AND summary.action IN (` + makes + `)
GROUP BY made.id
HAVING bool_and(summary.outcome IN ('rejected', 'open') OR NOT summary.sent)`,
		},
		{
			Name: "I-REJ unasked", Invariant: "I-REJ",
			Means: what + " without a request for it",
			Query: `
SELECT made.id::text
FROM ` + table + ` made
LEFT JOIN proof_summaries summary
       ON summary.client_id = made.client_id AND summary.key = made.idempotency_key AND summary.action IN (` + makes + `)
WHERE summary.name IS NULL`,
		},
	}
}
