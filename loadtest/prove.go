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
	// Mongo is the URL of a MongoDB server (a replica set) for a scenario whose flow
	// has its money there. Its database has the name of the other one.
	Mongo func(s Scenario) (string, error)
	// Prepare makes the tables in empty databases, puts there what the plan says,
	// and returns the credentials of the plan's clients, in their order.
	Prepare func(ctx context.Context, s Scenario, stores Stores, plan Plan) ([]Credentials, error)
	// Program starts a replica for a scenario, on its stores, with a prefix for its locks.
	Program func(s Scenario, stores Stores, lockPrefix string) (Program, error)
	// Fault makes what is done to a scenario's servers.
	Fault func(s Scenario, replicas *Replicas, stores Stores, lockPrefix string) (fault.Fault, error)
	// Leftovers lists the locks with a prefix that are still in the lock service
	// when nobody is left to hold them. May be nil.
	Leftovers func(ctx context.Context, s Scenario, lockPrefix string) ([]string, error)
	// Members says what differs between the members of the replica set, when all
	// replicas have been stopped. May be nil: nobody looks.
	Members func(ctx context.Context, s Scenario, database string) (Members, error)
	// Overheard is what the wires in front of MongoDB heard. May be nil.
	Overheard func(s Scenario) Overheard
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
		began := time.Now()
		flow := flowOf(s.Flow)
		report.Bound[s.Flow] = max(report.Bound[s.Flow], flow.bound(s.Fault, p.LockTTL[s.Flow]))
		load := flow.load(p.loadOf(s), s.Fault, p.LockTTL[s.Flow])
		plan := flow.Plan(load)
		p.Say("%d/%d %s: %s, expected to be %s", i+1, len(p.Scenarios), s.Name(), flow.Crowd(plan), s.Expect)
		result, err := p.scenario(ctx, &run{proof: p, flow: flow, scenario: s, plan: plan, duration: load.Duration})
		if err != nil {
			report.AsExpected = false // nobody knows what the rest would have shown
			return report, fmt.Errorf("%s: %w", s.Name(), err)
		}
		result.Lasted = time.Since(began)
		report.Scenarios = append(report.Scenarios, result)
		report.AsExpected = report.AsExpected && result.AsExpected
		p.Say("    %s", result.sentence())
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
func (p *Proof) scenario(ctx context.Context, r *run) (Result, error) {
	server, err := p.Server(r.scenario)
	if err != nil {
		return Result{}, err
	}
	r.prefix = fmt.Sprintf("shop_prove_%d", time.Now().UnixNano())
	if r.database, err = CreateDatabase(ctx, server, r.prefix); err != nil {
		return Result{}, err
	}
	r.stores.Postgres = r.database.URL
	if !p.Keep {
		defer func() { _ = r.database.Drop(ctx) }()
	}
	if r.flow.Mongo {
		leave, err := r.enterMongo(ctx)
		if err != nil {
			return Result{}, err
		}
		defer leave()
	}
	if r.clients, err = p.Prepare(ctx, r.scenario, r.stores, r.plan); err != nil {
		return Result{}, fmt.Errorf("prepare the database: %w", err)
	}
	program, err := p.Program(r.scenario, r.stores, r.prefix)
	if err != nil {
		return Result{}, err
	}
	if r.replicas, err = StartReplicas(ctx, program, p.Load.Replicas); err != nil {
		return Result{}, err
	}
	defer r.replicas.KillAll()
	if r.fault, err = p.Fault(r.scenario, r.replicas, r.stores, r.prefix); err != nil {
		return Result{}, err
	}
	result, err := r.all(ctx)
	result.Logs = program.Logs
	return result, err
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

// units is all that is there.
func (p Plan) units() (n int64) {
	for _, s := range p.Stock {
		n += s.Quantity
	}
	return n
}
