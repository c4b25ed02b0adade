// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Proof is a set of scenarios and everything that is needed to run them.
type Proof struct {
	Scenarios []Scenario
	Load      traffic.Load
	Calm      time.Duration            // length of the load without a fault; 0: as with a fault
	LockTTL   map[string]time.Duration // by flow
	Grace     time.Duration            // after the load, until every key must be decided; 0: 20 s
	Whole     bool                     // all scenarios with the default load: CheckedLeast operations must be checked
	Keep      bool                     // keep the databases
	Out       string                   // folder for the histories, with a folder for each scenario; "": they are not written
	Limits    linear.Limits            // of the check of each history

	// Server returns the postgres:// URL of a server on which a scenario's database may be created.
	Server func(s Scenario) (string, error)
	// Renew gives up the private servers of a scenario that could not be run: they may be gone.
	Renew func(s Scenario)
	// Prepare creates the tables in empty databases, fills them as the plan says, and returns the
	// credentials of the plan's clients, in their order.
	Prepare func(context.Context, *Trial) ([]Credentials, error)
	// Program returns how to start a replica on the trial's stores.
	Program func(*Trial) (site.Program, error)
	// Fault returns the trial's fault.
	Fault func(*Trial) (fault.Fault, error)
	// Leftovers lists the trial's locks that are still in the lock service when no process that could
	// hold them is left. May be nil.
	Leftovers func(context.Context, *Trial) ([]string, error)
	// Figures reads, into After, what the stores of a trial have besides PostgreSQL. idle has the connections in pools
	// of the replicas, by server, which do not count. May be nil.
	Figures func(ctx context.Context, t *Trial, idle map[string]int64) ([]Figure, error)
	// Monitor starts to observe what the replicas do to a server; nil: nothing is observed.
	Monitor func(context.Context, *Trial) (Monitor, error)
	// Done gets each result before it goes into the report. May be nil.
	Done func(*Result) error
	// Say prints a line for each step of the proof; Tick gets the state of the load, twice a second.
	Say  func(format string, args ...any)
	Tick func(line string)
}

// Monitor stops observing and returns the numbers. It is called when load and fault are over and the
// replicas still run.
type Monitor func(context.Context, []fault.Event) (map[string]int64, error)

// Run runs the scenarios one after the other. A scenario that could not be run is inconclusive. Run returns an error if none
// could be run before, or after four such runs in succession: the report then holds the scenarios before it, and is not as
// expected. A proof that fails is not an error.
func (p *Proof) Run(ctx context.Context) (Report, error) {
	report := Report{
		Seed: p.Load.Seed, AsExpected: len(p.Scenarios) > 0, Scenarios: []Result{}, Planned: len(p.Scenarios),
		Load: p.Load, Calm: p.Calm, Bound: map[string]time.Duration{}, When: time.Now(),
	}
	ran, unrun := false, 0 // whether any run has succeeded, and how many in succession have failed
	for i, s := range p.Scenarios {
		flow, ttl := s.Flow, p.LockTTL[s.Flow.Name]
		report.Bound[flow.Name] = max(report.Bound[flow.Name], flow.Bound(s.Fault, ttl))
		load := flow.Load(p.loadOf(s), s.Fault, ttl)
		plan := s.plan(load)
		p.Say("%d/%d %s: %s, expected to be %s", i+1, len(p.Scenarios), s.Name(), flow.Workload(plan), s.Expect)
		runs := 0
		result, err := twiceIfVoid(s, func() (Result, error) {
			if runs++; runs > 1 {
				p.Say("    once more: the first run showed nothing")
			}
			began, t := time.Now(), &Trial{proof: p, Scenario: s, Plan: plan, duration: load.Duration}
			result, err := p.scenario(ctx, t)
			if err == nil {
				ran, unrun = true, 0
			} else if unrun++; ran && unrun < 4 && ctx.Err() == nil {
				result, err = t.unrun(err), nil
				defer p.Renew(s)
			}
			if err == nil {
				p.Say("    %4.1f s  %s", time.Since(began).Seconds(), result.Sentence())
			}
			return result, err
		})
		if err != nil {
			report.AsExpected = false // the other scenarios did not run
			return report, fmt.Errorf("%s: %w", s.Name(), err)
		}
		if p.Done != nil {
			err = p.Done(&result)
		}
		report.Scenarios = append(report.Scenarios, result)
		report.checked(result)
		report.AsExpected = report.AsExpected && result.AsExpected && err == nil
		if err != nil {
			return report, err
		}
	}
	if p.Whole {
		report.CheckedLeast = CheckedLeast
		report.AsExpected = report.AsExpected && len(report.TooFew()) == 0
	}
	return report, nil
}

// loadOf returns the load of a scenario, before Flow.Load adapts it to the fault.
func (p *Proof) loadOf(s Scenario) traffic.Load {
	load := p.Load
	if s.Fault == NoFault && p.Calm > 0 {
		load.Duration = p.Calm
	}
	if p.Whole {
		load = s.Flow.lengthen(load, s)
	}
	load.Seed = cmp.Or(s.Seed, load.Seed)
	if s.Experiment != nil {
		load.Duration = s.Experiment.Lasts(p.LockTTL[s.Flow.Name])
		load.Replicas -= aside
	}
	if s.Fault == Nemesis && s.Expect == Violated {
		load.Duration = min(load.Duration, ControlFor)
	}
	return load
}

// plan draws what a scenario sends under a load.
func (s Scenario) plan(load traffic.Load) traffic.Plan {
	plan := s.Flow.Plan(load)
	if s.Experiment != nil {
		s.Experiment.Supply(&plan)
	}
	return plan
}

// scenario runs one scenario on a database of its own, which it drops afterwards.
func (p *Proof) scenario(ctx context.Context, t *Trial) (Result, error) {
	server, err := p.Server(t.Scenario)
	if err != nil {
		return Result{}, err
	}
	t.Prefix = fmt.Sprintf("shop_prove_%d", time.Now().UnixNano())
	database, err := site.CreateDatabase(ctx, server, t.Prefix)
	if err != nil {
		return Result{}, err
	}
	t.Postgres = database.URL
	if !p.Keep {
		defer func() { _ = database.Drop(ctx) }()
	}
	if t.Scenario.Flow.Open != nil {
		closing, err := t.Scenario.Flow.Open(ctx, t)
		if err != nil {
			return Result{}, err
		}
		defer closing()
	}
	if t.Clients, err = p.Prepare(ctx, t); err != nil {
		return Result{}, fmt.Errorf("prepare the database: %w", err)
	}
	program, err := p.Program(t)
	if err != nil {
		return Result{}, err
	}
	if t.Replicas, err = site.StartReplicas(ctx, program, p.Load.Replicas, site.NewCounters(t.Scenario.Flow.Name, t.Scenario.Flow.Counted...)); err != nil {
		return Result{}, err
	}
	defer t.Replicas.KillAll()
	if t.fault, err = p.Fault(t); err != nil {
		return Result{}, err
	}
	return t.run(ctx)
}

// Credentials are the id and the API key of one client.
type Credentials struct {
	ID  [16]byte
	Key string
}

func headersOf(clients []Credentials) traffic.Headers {
	h := traffic.Headers{Key: "Idempotency-Key"}
	for _, c := range clients {
		h.Clients = append(h.Clients, http.Header{"Authorization": {"Bearer " + c.Key}, "Content-Type": {"application/json"}})
	}
	return h
}

// Trial is one scenario in progress.
type Trial struct {
	Scenario     Scenario
	Plan         traffic.Plan
	Prefix       string        // of the locks; also the name of the databases
	Postgres     string        // URL of its own database
	State        any           // what Flow.Open opened
	Clients      []Credentials // of the plan, by Intent.Client
	Replicas     *site.Replicas
	*traffic.Run // of the plan, on the replicas
	Samples      []judge.Sample
	Tried        any      // what the Experiment found; nil: nothing
	AtRest       []Figure // of a Nemesis: see LeakInvariant
	// Monitored are the numbers of the Monitor.
	Monitored map[string]int64

	proof     *Proof
	duration  time.Duration // of the load
	fault     fault.Fault
	sent      vegeta.Results
	events    []fault.Event
	failed    error            // of the fault: it was not injected as planned
	pace      map[string]int64 // figures of how the service kept up with the load
	decided   time.Duration    // the end of the load: every key is decided, or the time for retries is over
	loaded    int              // number of records of the load: those after them are the postcheck's
	postcheck invariant.Findings
	left      []string // locks that exist although no process holds them
	before    []Figure // before the load
	replayed  int64
	hung      []string // replicas that did not stop in time
	silent    []string // decided keys that got no final answer when they were sent again
	looks     atomic.Int64
}

// Look returns the time for Flow.Watch, which calls it at the beginning of each sample.
func (t *Trial) Look() time.Duration {
	t.looks.Add(1)
	return t.History.Now()
}

// Looks counts the samples that have begun.
func (t *Trial) Looks() int64 { return t.looks.Load() }

// Seen returns a number that the fault has seen, for example writes that it delivered late.
func (t *Trial) Seen(name string) int64 { return fault.Seen(t.events)[name] }

// run is the protocol of a trial: load and fault together, then the postcheck, then, of a Nemesis, the comparison of
// the figures at rest, then the stop of all replicas, then the audit.
func (t *Trial) run(ctx context.Context) (result Result, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(t.failed, err) // what a failed fault has left behind may be the cause
		}
	}()
	if err := t.begin(ctx); err != nil {
		return Result{}, err
	}
	t.Replicas.UnderWay = t.Recorder.UnderWay
	defer t.Close()
	if err := t.beforeLoad(ctx); err != nil {
		return Result{}, err
	}
	if err := t.load(ctx); err != nil {
		return Result{}, err
	}
	t.check(ctx)
	t.Client.CloseIdleConnections() // net/http waits 5 s, at a shutdown, for a connection without a request
	t.afterLoad(ctx)
	t.hung = t.Replicas.Stop(ctx)
	if err := errors.Join(ctx.Err(), t.leftovers(ctx)); err != nil {
		return Result{}, err
	}
	return t.audit(ctx)
}

// begin creates the run on the replicas.
func (t *Trial) begin(ctx context.Context) error {
	flow := t.Scenario.Flow
	run, err := traffic.NewRun(ctx, t.Replicas.Bases(), headersOf(t.Clients), t.retryFor(), flow.Classify, flow.Stored...)
	if err == nil {
		t.Run, run.Follow = run, flow.FollowUp
	}
	if err == nil && t.Scenario.Experiment != nil {
		run.Bases = run.Bases[:t.Victim()]
	}
	return err
}

// check runs the postcheck, and sends decided keys again.
func (t *Trial) check(ctx context.Context) {
	t.postcheck = t.Scenario.Flow.Postcheck(ctx, t)
	t.replayed, t.silent = t.Replay(ctx, traffic.Grace)
}

// aside is how many replicas get none of the load beside an Experiment: its victim.
const aside = 1

// Victim returns the number of the victim, from 0.
func (t *Trial) Victim() int { return t.Replicas.Len() - aside }

// retryFor bounds the retries. An Experiment may take longer than the load.
func (t *Trial) retryFor() time.Duration {
	if t.Scenario.Experiment != nil {
		return 3*t.duration + t.Grace()
	}
	return t.duration + t.Grace()
}

// load sends the plan while the fault is injected and the database is sampled.
func (t *Trial) load(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	monitor, err := t.monitor(ctx)
	if err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	watched, injected := make(chan error, 1), make(chan error, 1)
	go func() {
		var err error
		t.Samples, err = t.Scenario.Flow.Watch(watching, t)
		watched <- err
	}()
	go func() { injected <- t.inject(ctx) }()
	go progress(watching, t.History, t.proof.Tick)
	t.sent = t.Send(ctx, t.Plan.Schedule)
	t.decided = t.History.Now()
	t.loaded = len(t.History.Records())
	t.failed = <-injected // a reason for an inconclusive run; see audit
	stop()
	var unseen error
	if t.Monitored, unseen = monitor(ctx, t.events); unseen != nil {
		unseen = fmt.Errorf("monitor: %w", unseen)
	}
	return errors.Join(ctx.Err(), <-watched, unseen)
}

// monitor opens the scenario's Monitor, or one that observes nothing.
func (t *Trial) monitor(ctx context.Context) (Monitor, error) {
	if t.proof.Monitor != nil {
		if m, err := t.proof.Monitor(ctx, t); m != nil || err != nil {
			return m, err
		}
	}
	return func(context.Context, []fault.Event) (map[string]int64, error) { return nil, nil }, nil
}

func (t *Trial) inject(ctx context.Context) error {
	from, over := faultWindow(t.duration)
	if !fault.Wait(ctx, from) {
		return ctx.Err()
	}
	var err error
	if t.events, err = t.fault.Inject(ctx, over); err != nil {
		for i := range t.events {
			if t.events[i].Until.IsZero() {
				t.events[i].Until = time.Now()
			}
		}
		return fmt.Errorf("fault %s: %w", t.Scenario.Fault, err)
	}
	return nil
}

// progress reports the state of the load twice a second.
func progress(ctx context.Context, h *traffic.History, say func(string)) {
	for fault.Wait(ctx, 500*time.Millisecond) {
		var n tallied
		h.Each(n.add)
		say(fmt.Sprintf("    %4.1f s  %5d ok  %5d rejected  %5d undecided", h.Now().Seconds(), n.ok, n.rejected, n.keys-n.ok-n.rejected))
	}
}
