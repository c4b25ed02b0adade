package loadtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/fault"
	"shop/locking/invariant"
	"shop/wallet/bonus"
)

// run is one scenario under way.
type run struct {
	proof    *Proof
	flow     Flow
	scenario Scenario
	plan     Plan
	duration time.Duration // of the load
	stores   Stores
	database *Database
	bonus    *bonus.Service // nil: the flow has none
	clients  []Credentials  // that send the plan
	replicas *Replicas
	fault    fault.Fault
	prefix   string // of the locks; and the name of the databases

	volley    *volley
	latencies vegeta.Metrics
	samples   []Sample
	events    []fault.Event
	acquired  int64 // locks taken until the fault was over
	decided   time.Duration
	loaded    int // keys of the load: what comes behind them is the finale
	finale    invariant.Findings
	left      []string // locks that nobody holds, and that are there
	replayed  int64
	silent    []string // keys that were decided, and got no final answer again

	mongoClients int64 // connections of the replicas to MongoDB, when the load was over
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
	volley, err := newVolley(ctx, r.replicas.Bases(), headersOf(r.clients), r.duration+r.patience(), Classify)
	if err != nil {
		return Result{}, err
	}
	r.volley, volley.follow = volley, r.flow.Follow
	r.replicas.UnderWay = volley.recorder.UnderWay
	defer volley.close()
	if err := r.load(ctx); err != nil {
		return Result{}, err
	}
	r.finale = r.flow.Finale(ctx, r)
	r.replayed, r.silent = volley.replay(ctx)
	r.replicas.Stop(ctx)
	if err := errors.Join(ctx.Err(), r.leftovers(ctx)); err != nil {
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
		r.samples, err = r.flow.Watch(watching, r.stores, r.volley.history.Now)
		watched <- err
	}()
	go func() { struck <- r.strike(ctx) }()
	go progress(watching, r.volley.history, r.proof.Tick)
	r.latencies = r.volley.fire(ctx, r.plan.Shots)
	r.decided = r.volley.history.Now()
	r.loaded = len(r.volley.history.Records())
	err := <-struck
	stop()
	return errors.Join(err, <-watched)
}

func (r *run) strike(ctx context.Context) error {
	if !fault.Wait(ctx, time.Duration(faultFrom*float64(r.duration))) {
		return ctx.Err()
	}
	var err error
	r.events, err = r.fault.Strike(ctx, time.Duration(faultPart*float64(r.duration)))
	if err != nil {
		return fmt.Errorf("fault %s: %w", r.scenario.Fault, err)
	}
	r.acquired = r.replicas.Peek(ctx)["lock_acquired"]
	return nil
}

// progress says how it goes, twice a second.
func progress(ctx context.Context, h *History, say func(string)) {
	for fault.Wait(ctx, 500*time.Millisecond) {
		keys, ok, rejected := h.Tally()
		say(fmt.Sprintf("    %4.1f s  %5d ok  %5d rejected  %5d to come", h.Now().Seconds(), ok, rejected, keys-ok-rejected))
	}
}

// audit asks what really happened, from outside, when nobody can change it any more.
func (r *run) audit(ctx context.Context) (Result, error) {
	records := r.volley.history.Records()
	audited, err := r.flow.Audit(ctx, r, records)
	if err != nil {
		return Result{}, err
	}
	findings := audited.Findings
	findings.Merge(r.finale)
	findings.Add("I-ONCE", diverged(records)...)
	findings.Add("I-LIVE", r.lifeless(records)...)
	findings.Add(r.flow.During, apart(r.samples)...)
	if r.flow.Leftover != "" {
		findings.Add(r.flow.Leftover, r.left...)
	}
	violations := findings.Counts()
	violations[r.flow.Number] = audited.Number
	result := r.result(records, violations, audited.Evidence)
	result.Findings, result.Oversale = findings, audited.Oversale
	return result, nil
}

// quiet connects to the database when nobody else is connected any more.
func (r *run) quiet(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, r.database.URL)
	if err != nil {
		return nil, err
	}
	if err := WaitQuiet(ctx, conn, quietWait); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// leftovers waits for the locks of the dead to run out, and lists those that do not.
func (r *run) leftovers(ctx context.Context) (err error) {
	if r.flow.Leftover == "" || r.proof.Leftovers == nil {
		return nil
	}
	for end := time.Now().Add(LiveBound(r.ttl())); ; {
		r.left, err = r.proof.Leftovers(ctx, r.scenario, r.prefix)
		if err != nil || len(r.left) == 0 || time.Now().After(end) || !fault.Wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// patience with keys that are not decided, and with the finale.
func (r *run) patience() time.Duration {
	return cmp.Or(r.scenario.Patience, r.proof.Patience, patience)
}

func (r *run) ttl() time.Duration { return r.proof.LockTTL[r.flow.Name] }

// lifeless is all that breaks I-LIVE.
func (r *run) lifeless(records []Record) []string {
	stalls := Stalls(r.volley.history, records, r.events, r.flow.bound(r.scenario.Fault, r.ttl()))
	return slices.Concat(stalls, r.silent, undecided(records))
}

// result puts the numbers together and judges them.
func (r *run) result(records []Record, violations, evidence map[string]int64) Result {
	result := newResult(r.scenario, r.replicas.Len())
	result.count(records[:r.loaded], r.decided)
	result.Violations, result.Evidence = violations, r.evidence(records)
	maps.Copy(result.Evidence, evidence)
	result.Void = VoidReasons(r.scenario, result.Evidence)
	result.Verdict, result.AsExpected = Judge(r.scenario, violations, result.Void)
	result.P50 = milliseconds(r.latencies.Latencies.P50)
	result.P99 = milliseconds(r.latencies.Latencies.P99)
	result.Stock, result.Records, result.Events = r.plan.units(), records, r.events
	result.Epoch, result.Samples = r.volley.history.epoch, r.samples
	return result
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
