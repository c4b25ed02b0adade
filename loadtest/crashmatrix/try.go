// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/nemesis"
	"shop/loadtest/traffic"
)

// Injection is the fault of a trial: it tries the cells of its scenario.
type Injection struct {
	Trial *loadtest.Trial
	Links []*nemesis.Link // from the replicas to their stores
}

// Inject tries the cells in sequence, and takes as long as they need.
func (i Injection) Inject(ctx context.Context, _ time.Duration) ([]fault.Event, error) {
	t, m := i.Trial, i.Trial.Scenario.Experiment.(Matrix)
	defer t.Hold()()
	t.Replicas.Destroy(t.Victim())
	if err := t.Replicas.Start(ctx, t.Victim(), m.failpoints(t.Scenario.Flow.Name)...); err != nil {
		return nil, err
	}
	var done Results
	return fault.Series(ctx, 0, len(m.Tried), 0, func(ctx context.Context, n int) (fault.Event, error) {
		a, began := attempt{Injection: i, Matrix: m, Cell: m.Tried[n], n: n}, time.Now()
		err := a.try(ctx)
		a.Seconds = time.Since(began).Seconds()
		if a.Verdict != "" {
			done = append(done, a.Cell)
			t.Tried = done
		}
		return a.event, err
	})
}

// failpoints returns the arguments with which the victim is started. For each cell, the request that is to be hit stops the
// victim at the cell's step.
func (m Matrix) failpoints(flow string) (args []string) {
	for n, c := range m.Tried {
		args = append(args, "--failpoint", fmt.Sprintf("%s/%s=stop:%s", flow, c.Step, Request{Cell: n, Role: Hit}.Key()))
	}
	return args
}

// attempt is a cell in progress.
type attempt struct {
	Injection
	Matrix
	Cell
	seen
	n      int // number of the cell
	event  fault.Event
	hit    *traffic.Intent // the request that the fault must hit
	rivals []*traffic.Intent
	about  []string // the objects, keys and operations of the cell
}

// The bounds of what happens within a cell.
const (
	pollEvery = time.Millisecond
	warmUps   = 20               // may be refused while the victim reconnects to its stores
	soundWait = 10 * time.Second // until the victim is healthy again
	stepWait  = 5 * time.Second  // until the request reaches the step
	cutMost   = 2 * time.Second  // until the cut has lost something
	cutLeast  = 50 * time.Millisecond
	pauseMost = 2 // TTLs, until a rival has succeeded
)

// pauseOf is how long the victim is paused at least.
func pauseOf(ttl time.Duration) time.Duration { return ttl * 6 / 5 }

// try runs the steps that the package documents. It fails if the fault cannot be injected or undone.
func (a *attempt) try(ctx context.Context) (err error) {
	t, victim := a.Trial, a.Trial.Victim()
	a.committed = a.place(a.Step) >= a.place(afterCommit)
	a.sound = a.warm(ctx)
	a.hit = a.begin(ctx, victim, Request{Role: Hit})
	until(ctx, stepWait, func() bool {
		a.stood = t.Replicas.Stopped(victim)
		return a.stood || a.answered(a.hit)
	})
	at := time.Now()
	if a.storedThen, err = a.effects(ctx); err != nil {
		return err
	}
	a.rival(ctx, Rival)
	if a.stood {
		a.event = fault.Event{What: fmt.Sprintf("replica %d: %v", victim+1, a.Cell), At: at}
		if a.evidence, err = a.inject(ctx); err != nil {
			return err
		}
		a.event.Until = cmp.Or(a.event.Until, time.Now())
	}
	return a.settle(ctx)
}

// begin sends a request of the cell to a replica.
func (a *attempt) begin(ctx context.Context, replica int, r Request) *traffic.Intent {
	r.Cell, r.Step = a.n, a.Step
	i := a.Request(a.Trial.Plan, r)
	a.about = append(append(a.about, i.Key), i.Contends...)
	a.Trial.Begin(ctx, a.Trial.Replicas.Bases()[replica], i)
	return i
}

// rival sends a request for the same objects to another replica.
func (a *attempt) rival(ctx context.Context, role Role) {
	a.rivals = append(a.rivals, a.begin(ctx, int(role)%a.Trial.Victim(), Request{Role: role}))
}

// answered reports whether the attempt for a key at the victim, which gets no retries, has ended in one of some ways; none
// given: in any.
func (a *attempt) answered(i *traffic.Intent, as ...traffic.Outcome) bool {
	return slices.ContainsFunc(a.Trial.History.Record(i.Key).Attempts, func(of traffic.Attempt) bool {
		return of.Replica == a.Trial.Victim() && (len(as) == 0 || slices.Contains(as, of.Outcome))
	})
}

// until polls a condition, and returns false if the condition does not hold within the limit.
func until(ctx context.Context, limit time.Duration, is func() bool) bool {
	for end := time.Now().Add(limit); !is(); {
		if time.Now().After(end) || !fault.Wait(ctx, pollEvery) {
			return false
		}
	}
	return true
}

// decided waits until a key is decided, and returns its record.
func (a *attempt) decided(ctx context.Context, i *traffic.Intent) (r traffic.Record) {
	until(ctx, a.Trial.Grace(), func() bool {
		r = a.Trial.History.Record(i.Key)
		return r.Outcome.Final()
	})
	if r.Outcome == traffic.OK {
		a.about = append(a.about, r.Made.String())
	}
	return r
}

// warm reports whether a request succeeds at the victim.
func (a *attempt) warm(ctx context.Context) bool {
	t, victim := a.Trial, a.Trial.Victim()
	if !until(ctx, soundWait, func() bool { return t.Replicas.Healthy(ctx, victim, a.Health) }) {
		return false
	}
	for try := range warmUps {
		i := a.begin(ctx, victim, Request{Role: WarmUp, Try: try})
		if a.decided(ctx, i); a.answered(i, traffic.OK) {
			return true
		}
	}
	return false
}

// inject injects the fault into the victim, which is stopped at the step.
func (a *attempt) inject(ctx context.Context) (evidence, error) {
	t, victim := a.Trial, a.Trial.Victim()
	switch a.Fault.Kind {
	case Killed:
		a.event.Replica, a.event.Ends = victim+1, true
		killed := t.Replicas.Destroy(victim)
		late, cancel := fault.Undoing(ctx)
		defer cancel()
		return evidence{"wait status SIGKILL", killed}, t.Replicas.Start(late, victim, a.failpoints(t.Scenario.Flow.Name)...)
	case Paused:
		a.event.Replica = victim + 1
		fault.Wait(ctx, pauseOf(t.TTL()))
		overtaken := until(ctx, pauseMost*t.TTL()-time.Since(a.event.At), func() bool {
			return t.History.Record(a.rivals[0].Key).Outcome == traffic.OK
		})
		stoodOn := t.Replicas.Stopped(victim)
		a.event.Until = time.Now() // before the victim can answer: an answer within the pause is no evidence of it
		return paused(a.event.Until.Sub(a.event.At), t.TTL(), stoodOn, overtaken), t.Replicas.Resume(victim)
	}
	at := slices.IndexFunc(a.Links, func(l *nemesis.Link) bool { return l.Replica() == victim && l.Store() == a.Fault.Store })
	if at < 0 {
		return evidence{}, fmt.Errorf("the victim has no link to %s", a.Fault.Store)
	}
	if a.Fault.Lost == Answers {
		t.Again(ctx, a.hit)
	}
	loss, err := a.Links[at].Lose(map[string]nemesis.Direction{Requests: nemesis.Requests, Answers: nemesis.Answers}[a.Fault.Lost])
	if err != nil {
		return evidence{}, err
	}
	before := loss.Connections()
	resumed := t.Replicas.Resume(victim)
	until(ctx, cutMost, func() bool { return loss.Chunks() > 0 || a.answered(a.hit) })
	fault.Wait(ctx, cutLeast)
	e := cut(loss.Chunks(), max(before, loss.Connections()), a.uses(a.Fault.Store, a.Step))
	return e, errors.Join(resumed, loss.Heal())
}

// settle waits until the victim has answered, and the key and its rivals are decided. Then it inspects the database, and
// judges.
func (a *attempt) settle(ctx context.Context) (err error) {
	until(ctx, a.Trial.Grace(), func() bool { return a.answered(a.hit) })
	if err := a.Trial.Replicas.Resume(a.Trial.Victim()); err != nil { // the request may have reached the step too late
		return err
	}
	a.record = a.decided(ctx, a.hit)
	a.rival(ctx, Last)
	for _, i := range a.rivals {
		if !a.decided(ctx, i).Outcome.Final() {
			a.stuck = append(a.stuck, i.Key)
		}
	}
	if a.stored, err = a.effects(ctx); err != nil {
		return err
	}
	if a.broken, err = a.violations(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	a.Verdict, a.Why = a.judge()
	if a.stood {
		a.Evidence = a.observed()
	}
	if a.evidence.hit {
		a.event.Hits, a.event.Seen = 1, map[string]int64{"cells_hit": 1}
	}
	return nil
}

// effects counts the stored effects of the key.
func (a *attempt) effects(ctx context.Context) (int, error) {
	check := a.Effects
	check.Query = strings.ReplaceAll(check.Query, "KEY", a.hit.Key)
	ids, err := a.Query(ctx, a.Trial, check)
	return len(ids), err
}

// violations lists the broken invariants that concern the cell.
func (a *attempt) violations(ctx context.Context) (found []string, err error) {
	for _, check := range a.Checks {
		ids, err := a.Query(ctx, a.Trial, check)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", check.Name, err)
		}
		for _, id := range ids {
			if slices.ContainsFunc(a.about, func(part string) bool { return strings.Contains(id, part) }) {
				found = append(found, fmt.Sprintf("%s: %s: %s", check.Invariant, check.Means, id))
			}
		}
	}
	return found, nil
}
