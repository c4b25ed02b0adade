package loadtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/fault"
)

// run is one scenario under way.
type run struct {
	proof    *Proof
	scenario Scenario
	plan     Plan
	database *Database
	clients  []Credentials // that send the plan
	replicas *Replicas
	fault    fault.Fault

	volley    *volley
	latencies vegeta.Metrics
	samples   []Sample
	events    []fault.Event
	acquired  int64 // locks taken until the fault was over
	decided   time.Duration
	dead      []string // products on which the finale failed
	replayed  int64
	silent    []string // keys that were decided, and got no final answer again
}

// Faults come when the load is in full swing, and end while there is still
// something to sell: a success after them must be possible.
const (
	faultFrom = 0.10
	faultPart = 0.65
)

// all is the protocol: load and fault together, then the finale, then all
// replicas are stopped, then the audit.
func (r *run) all(ctx context.Context) (Result, error) {
	duration := r.proof.Load.Duration
	volley, err := newVolley(ctx, r.replicas.Bases(), headersOf(r.clients), duration+r.proof.patience(), Classify)
	if err != nil {
		return Result{}, err
	}
	r.volley = volley
	r.replicas.UnderWay = volley.recorder.UnderWay
	defer volley.close()
	if err := r.load(ctx); err != nil {
		return Result{}, err
	}
	r.dead = volley.finale(ctx, r.plan.Stock)
	r.replayed, r.silent = volley.replay(ctx)
	r.replicas.Stop(ctx)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	return r.audit(ctx)
}

// load fires the plan while the fault strikes and the database is watched.
func (r *run) load(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched, struck := make(chan error, 1), make(chan error, 1)
	go func() {
		var err error
		r.samples, err = Watch(watching, r.database.URL, r.volley.history.Now)
		watched <- err
	}()
	go func() { struck <- r.strike(ctx) }()
	go progress(watching, r.volley.history, r.proof.Tick)
	r.latencies = r.volley.fire(ctx, r.plan.Shots)
	r.decided = r.volley.history.Now()
	err := <-struck
	stop()
	return errors.Join(err, <-watched)
}

func (r *run) strike(ctx context.Context) error {
	duration := r.proof.Load.Duration
	if !pause(ctx, time.Duration(faultFrom*float64(duration))) {
		return ctx.Err()
	}
	var err error
	r.events, err = r.fault.Strike(ctx, time.Duration(faultPart*float64(duration)))
	if err != nil {
		return fmt.Errorf("fault %s: %w", r.scenario.Fault, err)
	}
	r.acquired = r.replicas.Peek(ctx)["lock_acquired"]
	return nil
}

// progress says how it goes, twice a second.
func progress(ctx context.Context, h *History, say func(string)) {
	for pause(ctx, 500*time.Millisecond) {
		keys, ok, rejected := h.Tally()
		say(fmt.Sprintf("    %4.1f s  %5d ok  %5d rejected  %5d to come", h.Now().Seconds(), ok, rejected, keys-ok-rejected))
	}
}

// audit asks the database what really happened, from outside, when nobody can
// change it any more.
func (r *run) audit(ctx context.Context) (Result, error) {
	conn, err := pgx.Connect(ctx, r.database.URL)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := WaitQuiet(ctx, conn, quietWait); err != nil {
		return Result{}, err
	}
	records := r.volley.history.Records()
	if err := LoadHistory(ctx, conn, r.plan.Stock, lines(records, r.clients[0].ID)); err != nil {
		return Result{}, err
	}
	checks := append(append(append([]Check{}, InventoryChecks...), HistoryChecks...), SoldChecks...)
	findings, err := Audit(ctx, conn, checks)
	if err != nil {
		return Result{}, err
	}
	findings.Add("I-ONCE", diverged(records)...)
	findings.Add("I-LIVE", r.lifeless(records)...)
	findings.Add("S1-DURING", apart(r.samples)...)
	violations := findings.Counts()
	if violations["oversold"], err = units(ctx, conn, oversoldSQL); err != nil {
		return Result{}, err
	}
	oversale, err := FindOversale(ctx, conn, records[:len(r.plan.Intents)])
	if err != nil {
		return Result{}, err
	}
	result := r.result(records, violations)
	result.Findings, result.Oversale = findings, oversale
	return result, nil
}

// lifeless is all that breaks I-LIVE.
func (r *run) lifeless(records []Record) []string {
	stalls := Stalls(r.volley.history, records, r.events, LiveBound(r.proof.LockTTL[r.scenario.Flow]))
	return slices.Concat(stalls, r.dead, r.silent, undecided(records))
}

// result puts the numbers together and judges them.
func (r *run) result(records []Record, violations map[string]int64) Result {
	result := newResult(r.scenario, r.replicas.Len())
	result.count(records[:len(r.plan.Intents)], r.decided) // the finale is not load
	result.Violations, result.Evidence = violations, r.evidence(records)
	result.Void = VoidReasons(r.scenario, result.Evidence)
	result.Verdict, result.AsExpected = Judge(r.scenario, violations, result.Void)
	result.P50 = milliseconds(r.latencies.Latencies.P50)
	result.P99 = milliseconds(r.latencies.Latencies.P99)
	result.Stock, result.Records, result.Events = r.plan.units(), records, r.events
	result.Epoch, result.Samples = r.volley.history.epoch, r.samples
	return result
}

func (r *run) evidence(records []Record) map[string]int64 {
	evidence := maps.Clone(r.replicas.Counters.Sum())
	maps.Copy(evidence, fromOutside(records, r.replicas.Len(), r.events, r.volley.history.epoch))
	planned := int64(len(r.plan.Shots)+len(records)-len(r.plan.Intents)) + r.replayed
	evidence["sent_again"], evidence["replayed"] = evidence["attempts"]-planned, r.replayed
	evidence["samples"] = int64(len(r.samples))
	switch r.scenario.Fault {
	case Crash:
		evidence["crashes"] = hits(r.events)
	case LockLost:
		evidence["locks_deleted"] = hits(r.events)
	case RedisDown:
		evidence["redis_kills"] = hits(r.events)
		evidence["lock_acquired_after"] = evidence["lock_acquired"] - r.acquired
	}
	return evidence
}

func hits(events []fault.Event) (n int64) {
	for _, e := range events {
		n += e.Hits
	}
	return n
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
