package loadtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// audit reads what really happened, from outside, when nothing can change it any more.
func (t *Trial) audit(ctx context.Context) (Result, error) {
	records, flow := t.History.Records(), t.Scenario.Flow
	audited, err := flow.Audit(ctx, t, records)
	if err != nil {
		return Result{}, err
	}
	findings := audited.Findings
	findings.Merge(t.postcheck)
	findings.Add("I-ONCE", diverged(records)...)
	findings.Add("I-LIVE", t.lifeless(records)...)
	findings.Add("I-DENY", allowed(records)...)
	findings.Merge(t.keptUp(records))
	findings.Add("I-LOCKED", t.unlocked(records)...)
	findings.Add("I-BODY", hidden(records)...)
	findings.Add("I-CLOCK", t.History.Untimely(records, flow.Moments)...)
	findings.Add(flow.During, Apart(t.Samples)...)
	if t.Scenario.Fault == CrashMatrix {
		findings.Add(CellInvariant.Code, violatedCells(t.Cells)...)
	}
	if flow.Leftover != "" {
		findings.Add(flow.Leftover, t.left...)
	}
	result := t.result(records, audited.Evidence)
	result.Findings, result.Story = findings, audited.Story
	if err := t.linearize(ctx, &result, records, audited); err != nil {
		return Result{}, err
	}
	result.Violations = findings.Counts()
	result.Violations[flow.Number] = audited.Number
	result.Verdict, result.AsExpected = Judge(t.Scenario, result.Violations, result.Inconclusive)
	return result, nil
}

// Quiet connects to the database when no other connection to it is left; in a soak, whose replicas
// live on, when no other connection has anything to do.
func (t *Trial) Quiet(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return nil, err
	}
	wait := WaitQuiet
	if t.Lives() {
		wait = WaitIdle
	}
	if err := wait(ctx, conn, QuietWait); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// leftovers waits until the locks of killed processes have run out, and lists those that do not.
func (t *Trial) leftovers(ctx context.Context) (err error) {
	if t.Scenario.Flow.Leftover == "" || t.proof.Leftovers == nil {
		return nil
	}
	for end := time.Now().Add(LiveBound(t.TTL())); ; {
		t.left, err = t.proof.Leftovers(ctx, t)
		if err != nil || len(t.left) == 0 || time.Now().After(end) || !fault.Wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// Grace bounds the wait for keys that are not decided, and the postcheck.
func (t *Trial) Grace() time.Duration {
	return cmp.Or(t.Scenario.Grace, t.proof.Grace, grace)
}

// TTL is that of the flow's locks.
func (t *Trial) TTL() time.Duration { return t.proof.LockTTL[t.Scenario.Flow.Name] }

// Keep says whether the databases stay.
func (t *Trial) Keep() bool { return t.proof.Keep }

// Loaded are the records of the load, without those of the postcheck.
func (t *Trial) Loaded(records []Record) []Record { return records[:t.loaded] }

// lifeless is all that breaks I-LIVE.
func (t *Trial) lifeless(records []Record) []string {
	bound := t.Scenario.Flow.Bound(t.Scenario.Fault, t.TTL())
	return slices.Concat(Stalls(t.History, records, t.events, bound), t.silent, undecided(records))
}

// unlocked says that keys had an effect without a lock. While the lock service is away that may
// be so; but one that is never asked for a lock has none to lose.
func (t *Trial) unlocked(records []Record) []string {
	asked, watched := t.Witnessed["lock_calls"]
	if !watched || !t.Scenario.locked() {
		return nil
	}
	_, done, _ := tally(t.Loaded(records))
	if t.Scenario.Flow.spec(t.Scenario.Fault).Outage {
		done = min(done, 1)
	}
	if asked >= int64(done) {
		return nil
	}
	return []string{fmt.Sprintf("%d keys had an effect, and the lock service was asked for %d locks", done, asked)}
}

// keptUp is how the service kept up with the load.
func (t *Trial) keptUp(records []Record) invariant.Findings {
	tempo := newTempo(t.History, t.Loaded(records), t.events, t.duration)
	findings, figures := tempo.judge(t.Scenario.Flow.pace(t.Scenario.Fault, t.TTL()))
	t.pace = figures
	return findings
}

// result puts the numbers together, without a verdict. Those of the replicas about themselves
// come when it is known what the run shows.
func (t *Trial) result(records []Record, evidence map[string]int64) Result {
	result := NewResult(t.Scenario, t.Replicas.Len())
	result.measure(records[:t.loaded], t.decided)
	result.Evidence = t.evidence(records)
	maps.Copy(result.Evidence, evidence)
	result.Cells = t.Cells
	result.Inconclusive = slices.Concat(InconclusiveReasons(t.Scenario, result.Evidence), lagging(result.Latency.Lag), t.Scenario.unshown(t.Cells))
	for name, n := range t.Replicas.counters.Sum() {
		if _, known := result.Evidence[name]; !known {
			result.Evidence[name] = n
		}
	}
	result.Plan, result.Records, result.Events = t.Plan, records, t.events
	result.Epoch, result.Samples, result.Sent = t.History.Epoch, t.Samples, t.sent
	return result
}
