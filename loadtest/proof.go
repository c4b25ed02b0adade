package loadtest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"shop/loadtest/fault"
)

// Proof is a set of scenarios and all that is needed to run them.
type Proof struct {
	Scenarios []Scenario
	Load      Load
	Calm      time.Duration            // of the load of a scenario without a fault; 0: as the others
	LockTTL   map[string]time.Duration // by flow
	Patience  time.Duration            // after the load, until every key must be decided; 0: 20 s
	Keep      bool                     // the databases stay

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
	// Say is told how it goes; Tick, more often, while the load runs.
	Say  func(format string, args ...any)
	Tick func(line string)
}

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
		plan := flow.Plan(load)
		p.Say("%d/%d %s: %s, expected to be %s", i+1, len(p.Scenarios), s.Name(), flow.Workload(plan), s.Expect)
		result, err := p.scenario(ctx, &Trial{proof: p, Scenario: s, Plan: plan, duration: load.Duration})
		if err != nil {
			report.AsExpected = false // the rest is not known
			return report, fmt.Errorf("%s: %w", s.Name(), err)
		}
		report.Scenarios = append(report.Scenarios, result)
		report.AsExpected = report.AsExpected && result.AsExpected
		p.Say("    %s", result.Sentence())
	}
	return report, nil
}

// loadOf is the load of a scenario, before its flow says how much longer it needs.
func (p *Proof) loadOf(s Scenario) Load {
	load := p.Load
	if s.Fault == NoFault && p.Calm > 0 {
		load.Duration = p.Calm
	}
	return load
}

// scenario gives one scenario a database, and takes it away again.
func (p *Proof) scenario(ctx context.Context, t *Trial) (Result, error) {
	server, err := p.Server(t.Scenario)
	if err != nil {
		return Result{}, err
	}
	t.Prefix = fmt.Sprintf("shop_prove_%d", time.Now().UnixNano())
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
	if t.Replicas, err = StartReplicas(ctx, program, p.Load.Replicas, t.Scenario.Flow.Counters); err != nil {
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
