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
	"shop/loadtest/linear"
	"shop/locking/invariant"
)

// Proof is a set of scenarios and all that is needed to run them.
type Proof struct {
	Scenarios []Scenario
	Load      Load
	Calm      time.Duration            // of the load of a scenario without a fault; 0: as the others
	LockTTL   map[string]time.Duration // by flow
	Grace     time.Duration            // after the load, until every key must be decided; 0: 20 s
	Whole     bool                     // all scenarios, with the load by default: enough operations must be checked (CheckedLeast)
	Keep      bool                     // the databases stay
	Out       string                   // folder for the histories, one below it for each scenario; "": they are not kept
	Limits    linear.Limits            // of the check of each history

	// Server is the postgres:// URL of a server on which a scenario's database may be made.
	Server func(s Scenario) (string, error)
	// Prepare makes the tables in empty databases, puts there what the plan says,
	// and returns the credentials of the plan's clients, in their order.
	Prepare func(context.Context, *Trial) ([]Credentials, error)
	// Program says how to start a replica, on the trial's stores.
	Program func(*Trial) (Program, error)
	// Fault makes what is done to the trial's servers.
	Fault func(*Trial) (fault.Fault, error)
	// Leftovers lists the trial's locks that are still in the lock service when no
	// process is left to hold them. May be nil.
	Leftovers func(context.Context, *Trial) ([]string, error)
	// Witness sees what the replicas do to a server, from when it is opened; nil: there is none.
	Witness func(context.Context, *Trial) (Witness, error)
	// Done gets each result as soon as it is there, before it goes into the report. May be nil.
	Done func(*Result) error
	// Say gets a line for each step of the proof; Tick gets the state of the load, twice a second.
	Say  func(format string, args ...any)
	Tick func(line string)
}

// Witness says in numbers what it has seen, and ends. It is asked when load and fault are
// over and the replicas still live.
type Witness func(context.Context, []fault.Event) (map[string]int64, error)

// Run runs the scenarios one after the other. The error is about what could not
// be run; that a proof failed is in the report. With an error, the report
// holds the scenarios before it, and is not as expected.
func (p *Proof) Run(ctx context.Context) (Report, error) {
	report := Report{
		Seed: p.Load.Seed, AsExpected: len(p.Scenarios) > 0, Scenarios: []Result{}, Planned: len(p.Scenarios),
		Load: p.Load, Calm: p.Calm, Bound: map[string]time.Duration{}, When: time.Now(),
	}
	for i, s := range p.Scenarios {
		flow, ttl := s.Flow, p.LockTTL[s.Flow.Name]
		report.Bound[flow.Name] = max(report.Bound[flow.Name], flow.Bound(s.Fault, ttl))
		load := flow.Load(p.loadOf(s), s.Fault, ttl)
		plan := s.plan(load)
		p.Say("%d/%d %s: %s, expected to be %s", i+1, len(p.Scenarios), s.Name(), flow.Workload(plan), s.Expect)
		began := time.Now()
		result, err := p.scenario(ctx, &Trial{proof: p, Scenario: s, Plan: plan, duration: load.Duration})
		if err != nil {
			report.AsExpected = false // the rest is not known
			return report, fmt.Errorf("%s: %w", s.Name(), err)
		}
		p.Say("    %4.1f s  %s", time.Since(began).Seconds(), result.Sentence())
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

// loadOf is the load of a scenario, before its flow says how much longer it needs.
func (p *Proof) loadOf(s Scenario) Load {
	load := p.Load
	if s.Fault == NoFault && p.Calm > 0 {
		load.Duration = p.Calm
	}
	if p.Whole {
		load = s.Flow.lengthen(load, s)
	}
	load.Seed = cmp.Or(s.Seed, load.Seed)
	if s.Fault == CrashMatrix {
		load.Duration = s.cellsTime(p.LockTTL[s.Flow.Name])
		load.Replicas -= aside
	}
	if s.Fault == Nemesis && s.Expect == Violated {
		load.Duration = min(load.Duration, ControlFor)
	}
	return load
}

func newPrefix() string { return fmt.Sprintf("shop_prove_%d", time.Now().UnixNano()) }

// plan is what a scenario sends under a load.
func (s Scenario) plan(load Load) Plan {
	plan := s.Flow.Plan(load)
	if cells := s.CellsOf(); len(cells) > 0 {
		s.Flow.Cells.Supply(&plan, len(cells))
	}
	return plan
}

// scenario gives one scenario a database, and takes it away again.
func (p *Proof) scenario(ctx context.Context, t *Trial) (Result, error) {
	server, err := p.Server(t.Scenario)
	if err != nil {
		return Result{}, err
	}
	t.Prefix = newPrefix()
	database, err := CreateDatabase(ctx, server, t.Prefix)
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
	if t.Replicas, err = StartReplicas(ctx, program, p.Load.Replicas, t.Scenario.Flow); err != nil {
		return Result{}, err
	}
	defer t.Replicas.KillAll()
	if t.fault, err = p.Fault(t); err != nil {
		return Result{}, err
	}
	return t.run(ctx)
}

// Credentials are those of one client.
type Credentials struct {
	ID  [16]byte
	Key string
}

func headersOf(clients []Credentials) Headers {
	h := Headers{Key: "Idempotency-Key"}
	for _, c := range clients {
		h.Clients = append(h.Clients, http.Header{"Authorization": {"Bearer " + c.Key}, "Content-Type": {"application/json"}})
	}
	return h
}

// Trial is one scenario under way.
type Trial struct {
	Scenario Scenario
	Plan     Plan
	Prefix   string        // of the locks; and the name of the databases
	Postgres string        // URL of the database that it has for itself
	State    any           // what Flow.Open opened
	Clients  []Credentials // that send the plan
	Replicas *Replicas
	*Run     // of the plan, on the replicas
	Samples  []Sample
	Cells    []Cell // of the crash matrix, as they were tried
	// Witnessed is what a server says of the load: what was done to it, and by it.
	Witnessed map[string]int64

	proof     *Proof
	duration  time.Duration // of the load
	fault     fault.Fault
	sent      vegeta.Results
	events    []fault.Event
	pace      map[string]int64 // how it kept up under the load
	decided   time.Duration
	loaded    int // keys of the load: those behind them are the postcheck's
	postcheck invariant.Findings
	left      []string // locks that no process holds, and that are there
	replayed  int64
	silent    []string // keys that were decided, and got no final answer again
	looks     atomic.Int64
}

// Look is the clock of Flow.Watch, which reads it when a look at the database begins.
func (t *Trial) Look() time.Duration {
	t.looks.Add(1)
	return t.History.Now()
}

// Looks is how many looks at the database have begun.
func (t *Trial) Looks() int64 { return t.looks.Load() }

// run is the protocol: load and fault together, then the postcheck, then all
// replicas are stopped, then the audit.
func (t *Trial) run(ctx context.Context) (Result, error) {
	if err := t.begin(ctx); err != nil {
		return Result{}, err
	}
	t.Replicas.UnderWay = t.recorder.UnderWay
	defer t.Close()
	if err := t.load(ctx); err != nil {
		return Result{}, err
	}
	t.check(ctx)
	t.Replicas.Stop(ctx)
	if err := errors.Join(ctx.Err(), t.leftovers(ctx)); err != nil {
		return Result{}, err
	}
	return t.audit(ctx)
}

// begin makes the run, on the replicas.
func (t *Trial) begin(ctx context.Context) error {
	run, err := NewRun(ctx, t.Replicas.Bases(), headersOf(t.Clients), t.retryFor(), Classify)
	if err == nil {
		t.Run, run.followUp = run, t.Scenario.Flow.FollowUp
	}
	if err == nil && t.Scenario.Fault == CrashMatrix {
		run.Bases = run.Bases[:t.Victim()]
	}
	return err
}

// check asks what must still work when the load is over.
func (t *Trial) check(ctx context.Context) {
	t.postcheck = t.Scenario.Flow.Postcheck(ctx, t)
	t.replayed, t.silent = t.replay(ctx)
}

// aside is how many replicas get none of the load under CrashMatrix: the one that things are done to.
const aside = 1

// Victim is its number, from 0.
func (t *Trial) Victim() int { return t.Replicas.Len() - aside }

// retryFor bounds the retries. Cells of a crash matrix may take longer than the load.
func (t *Trial) retryFor() time.Duration {
	if t.Scenario.Fault == CrashMatrix {
		return 3*t.duration + t.Grace()
	}
	return t.duration + t.Grace()
}

// load sends the plan while the fault is injected and the database is watched.
func (t *Trial) load(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	witness, err := t.witness(ctx)
	if err != nil {
		return fmt.Errorf("witness: %w", err)
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
	err = <-injected
	stop()
	var unseen error
	if t.Witnessed, unseen = witness(ctx, t.events); unseen != nil {
		unseen = fmt.Errorf("witness: %w", unseen)
	}
	return errors.Join(err, <-watched, unseen)
}

// witness opens the scenario's.
func (t *Trial) witness(ctx context.Context) (Witness, error) {
	if t.proof.Witness != nil {
		if w, err := t.proof.Witness(ctx, t); w != nil || err != nil {
			return w, err
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
		return fmt.Errorf("fault %s: %w", t.Scenario.Fault, err)
	}
	return nil
}

// progress reports how far the load has come, twice a second.
func progress(ctx context.Context, h *History, say func(string)) {
	for fault.Wait(ctx, 500*time.Millisecond) {
		n := h.tally()
		say(fmt.Sprintf("    %4.1f s  %5d ok  %5d rejected  %5d to come", h.Now().Seconds(), n.ok, n.rejected, n.keys-n.ok-n.rejected))
	}
}
