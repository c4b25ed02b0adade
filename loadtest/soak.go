// SPDX-License-Identifier: MIT

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

// Soak is a series of shifts on the same replicas. In the middle of some shifts a store is killed and
// restarted. It is not part of the matrix.
const Soak Fault = "soak"

// SoakSpec is the FaultSpec of Soak. recovery is how long the flow's servers need before anything can
// succeed.
func SoakSpec(recovery time.Duration) FaultSpec {
	return FaultSpec{Fault: Soak, Apart: true, Outage: true, Recovery: recovery}
}

// Lives reports whether the replicas keep running while the trial is audited.
func (t *Trial) Lives() bool { return t.Scenario.Fault == Soak }

// AgeKeysSQL makes all idempotency keys so old that the batch purges them. Their clients have their answers
// and do not retry.
const AgeKeysSQL = `UPDATE idempotency_keys SET created_at = created_at - interval '25 hours' WHERE created_at > now() - interval '24 hours'`

// Soaking is what a soak needs beside a Proof. The proof has one scenario for each flow, and the load of
// one shift.
type Soaking struct {
	For     time.Duration                                                      // the soak lasts at least this long, until the shift ends that is then under way
	Shifts  int                                                                // at most; 0: as many as there is time for
	Every   time.Duration                                                      // between two readings
	Program func([]*Trial) (Program, error)                                    // one for all flows
	Sources func(context.Context, []*Trial) (sources []soak.Source, err error) // called when the replicas are ready
	Fault   func(shift int) fault.Fault                                        // the fault of a shift, from 1
}

// restWait bounds how long, after the load and after the last lease has expired, the readings may take to
// reach their limits at rest.
const restWait = time.Minute

// Soak runs all flows at once on one set of replicas, in one shift after the other, while the sources are
// read. Each shift is audited and checked like a scenario, with its own seed. Then its requests are
// dropped, so that memory does not grow with the length of the soak.
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

// settle creates one database for all flows, and opens what else they need.
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

// shiftOf returns the trial of a flow in shift n, from 1, on the stores and replicas of an earlier trial.
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
	watch.Look(ctx) // the reading before the load
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
		if n == s.Shifts || time.Since(begun) >= s.For {
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

// shift runs the loads of all flows at once, and audits them when all have ended.
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
		return errors.Join(together.err, err)
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
	return together.err // further shifts would not help
}

// rest waits until all leases have expired and the readings are at rest. Then it stops the replicas: no lock
// may be left.
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
			p.Say("    NOT AS EXPECTED: a lock is left after all processes have exited: %s", lock)
		}
	}
	return ctx.Err()
}

// shared is one fault for several flows: it is injected once, and each flow gets its events.
type shared struct {
	fault.Fault
	once   sync.Once
	events []fault.Event
	err    error
}

// Inject injects the fault for the first caller, while the others wait. Only the events of the first
// caller count hits.
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

// ExecSQL runs statements in the trial's database in one transaction.
func (t *Trial) ExecSQL(ctx context.Context, statements string) error {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}
