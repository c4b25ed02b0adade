package loadtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/loadtest/soak"
)

// Soak is a row of shifts on replicas that live all the time, in the middle of some of which a
// store is killed and started again. It is no part of the matrix.
const Soak Fault = "soak"

// SoakSpec is Soak under a flow, whose servers need so long before anything can succeed.
func SoakSpec(recovery time.Duration) FaultSpec {
	return FaultSpec{Fault: Soak, Apart: true, Outage: true, Recovery: recovery}
}

// Lives tells whether the replicas of a trial live on when it is audited.
func (t *Trial) Lives() bool { return t.Scenario.Fault == Soak }

// AgeKeysSQL makes all idempotency keys so old that they are purged. Their clients have been
// answered, and do not come again.
const AgeKeysSQL = `UPDATE idempotency_keys SET created_at = created_at - interval '25 hours' WHERE created_at > now() - interval '24 hours'`

// Soaking is what a soak needs beside a proof. The scenarios of the proof are one for each flow,
// and its load is that of one shift.
type Soaking struct {
	For     time.Duration                                                      // shifts begin as long as they end within it
	Shifts  int                                                                // at most; 0: as many as there is time for
	Every   time.Duration                                                      // between two readings
	Program func([]*Trial) (Program, error)                                    // one for all flows
	Sources func(context.Context, []*Trial) (sources []soak.Source, err error) // asked when the replicas are ready
	Fault   func(shift int) fault.Fault                                        // what is done in shift n, from 1
}

// restWait is how long after the load, and after the last lease, everything may take to be gone.
const restWait = time.Minute

// Soak runs the flows side by side on one set of replicas, in one shift after the other. Each shift
// is audited and checked as a scenario of its own is, with its own seed, and then its requests are
// forgotten: memory does not grow with the length of the soak. Meanwhile the sources are read.
func (p *Proof) Soak(ctx context.Context, s Soaking) (report Report, err error) {
	report = Report{
		Seed: p.Load.Seed, AsExpected: true, Scenarios: []Result{}, Planned: len(p.Scenarios),
		Load: p.Load, Bound: map[string]time.Duration{}, When: time.Now(),
	}
	first, closing, err := p.settle(ctx)
	if err != nil {
		return report, err
	}
	defer closing()
	if err := p.prepareAll(ctx, first); err != nil {
		return report, err
	}
	program, err := s.Program(first)
	if err != nil {
		return report, err
	}
	replicas, err := StartReplicas(ctx, program, p.Load.Replicas, nil)
	if err != nil {
		return report, err
	}
	defer replicas.KillAll()
	for _, t := range first {
		t.Replicas = replicas
		report.Bound[t.Scenario.Flow.Name] = t.Scenario.Flow.Bound(Soak, t.TTL())
	}
	sources, err := s.Sources(ctx, first)
	if err != nil {
		return report, err
	}
	watch := soak.New(sources...)
	err = p.shifts(ctx, s, watch, first, &report)
	if err == nil {
		err = p.rest(ctx, first, watch, &report)
	}
	report.Series = watch.Judge()
	report.AsExpected = report.AsExpected && err == nil && len(report.Scenarios) > 0 && len(soak.Failed(report.Series)) == 0
	for _, failed := range soak.Failed(report.Series) {
		p.Say("    NOT AS EXPECTED: %s: %s: %s", failed.Label(), failed.Verdict, failed.Why)
	}
	return report, err
}

// settle gives all flows one database, and what else they need.
func (p *Proof) settle(ctx context.Context) (trials []*Trial, closing func(), err error) {
	var undo []func()
	closing = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			closing()
		}
	}()
	server, err := p.Server(p.Scenarios[0])
	if err != nil {
		return nil, nil, err
	}
	prefix := newPrefix()
	database, err := CreateDatabase(ctx, server, prefix)
	if err != nil {
		return nil, nil, err
	}
	if !p.Keep {
		undo = append(undo, func() { _ = database.Drop(ctx) })
	}
	for _, s := range p.Scenarios {
		t := p.shiftOf(&Trial{Scenario: s, Prefix: prefix, Postgres: database.URL}, 1)
		if s.Flow.Open != nil {
			done, err := s.Flow.Open(ctx, t)
			if err != nil {
				return nil, nil, err
			}
			undo = append(undo, done)
		}
		trials = append(trials, t)
	}
	return trials, closing, nil
}

// shiftOf is the trial of a flow in shift n, from 1, on the stores and replicas of an earlier one.
func (p *Proof) shiftOf(t *Trial, n int) *Trial {
	next := &Trial{proof: p, Scenario: t.Scenario, Prefix: t.Prefix, Postgres: t.Postgres, State: t.State, Replicas: t.Replicas}
	next.Scenario.Seed = p.Load.Seed + int64(n) - 1
	load := next.Scenario.Flow.Load(p.Load, Soak, next.TTL())
	load.Seed = next.Scenario.Seed
	next.Plan, next.duration = next.Scenario.Flow.Plan(load), load.Duration
	return next
}

func (p *Proof) prepareAll(ctx context.Context, trials []*Trial) (err error) {
	for _, t := range trials {
		if t.Clients, err = p.Prepare(ctx, t); err != nil {
			return fmt.Errorf("prepare the database of %s: %w", t.Scenario.Name(), err)
		}
	}
	return nil
}

// shifts runs shift after shift, while the sources are read.
func (p *Proof) shifts(ctx context.Context, s Soaking, watch *soak.Watch, trials []*Trial, report *Report) error {
	watch.Look(ctx) // before the load
	reading, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() { watch.Run(reading, s.Every) })
	begun := time.Now()
	for n := 1; ; n++ {
		watch.Shift()
		report.Planned = len(report.Scenarios) + len(trials)
		p.Say("shift %d, %s to %s of %s:", n, since(begun), since(begun.Add(-p.Load.Duration)), s.For)
		if err := p.shift(ctx, s.Fault(n), trials, report); err != nil {
			return fmt.Errorf("shift %d: %w", n, err)
		}
		if n == s.Shifts || time.Since(begun)+p.Load.Duration > s.For {
			return nil
		}
		for i, t := range trials {
			trials[i] = p.shiftOf(t, n+1)
		}
		if err := p.prepareAll(ctx, trials); err != nil {
			return err
		}
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// shift runs the load of all flows at once, and audits it when all are done.
func (p *Proof) shift(ctx context.Context, f fault.Fault, trials []*Trial, report *Report) error {
	together := &shared{Fault: f}
	errs := make([]error, len(trials))
	var loads sync.WaitGroup
	for i, t := range trials {
		if err := t.begin(ctx); err != nil {
			return err
		}
		defer t.Close()
		t.fault = together
		loads.Go(func() { errs[i] = t.load(ctx) })
	}
	loads.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, t := range trials {
		t.check(ctx)
		t.Client.CloseIdleConnections()
	}
	for _, t := range trials {
		result, err := t.audit(ctx)
		if err != nil {
			return err
		}
		p.Say("  %s: %s", result.Name(), result.Sentence())
		if p.Done != nil {
			err = p.Done(&result)
		}
		report.Scenarios = append(report.Scenarios, result)
		report.checked(result)
		report.AsExpected = report.AsExpected && result.AsExpected && err == nil
		if err != nil {
			return err
		}
	}
	for _, t := range trials {
		if t.Scenario.Flow.Archive == nil {
			continue
		}
		if err := t.Scenario.Flow.Archive(ctx, t); err != nil {
			return fmt.Errorf("archive %s: %w", t.Scenario.Name(), err)
		}
	}
	return nil
}

// rest waits until all leases have run out, and what the load has left is gone. Then the replicas
// are stopped, and no lock may be left.
func (p *Proof) rest(ctx context.Context, trials []*Trial, watch *soak.Watch, report *Report) error {
	longest := time.Duration(0)
	for _, t := range trials {
		longest = max(longest, LiveBound(t.TTL()))
	}
	p.Say("at rest:")
	if !fault.Wait(ctx, longest) {
		return ctx.Err()
	}
	watch.Rest()
	for end := time.Now().Add(restWait); ; {
		watch.Look(ctx)
		if watch.Rested() || time.Now().After(end) || !fault.Wait(ctx, time.Second) {
			break
		}
	}
	trials[0].Replicas.Stop(ctx)
	for _, t := range trials {
		if err := t.leftovers(ctx); err != nil {
			return err
		}
		for _, lock := range t.left {
			report.AsExpected = false
			p.Say("    NOT AS EXPECTED: left when all processes have ended: %s", lock)
		}
	}
	return ctx.Err()
}

// shared is one fault for several flows: it is injected once, and each gets its events.
type shared struct {
	fault.Fault
	once   sync.Once
	events []fault.Event
	err    error
}

// Inject injects for the first caller, and lets the others wait. The hits are those of the first.
func (s *shared) Inject(ctx context.Context, over time.Duration) (events []fault.Event, err error) {
	first := false
	s.once.Do(func() {
		first = true
		s.events, s.err = s.Fault.Inject(ctx, over)
	})
	for _, e := range s.events {
		e.Seen = maps.Clone(e.Seen)
		if !first {
			e.Hits = 0
		}
		events = append(events, e)
	}
	return events, s.err
}

// ExecSQL runs statements in the trial's database, as one transaction.
func (t *Trial) ExecSQL(ctx context.Context, statements string) error {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}
