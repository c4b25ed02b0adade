// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/nemesis"
)

// trying is the run of a cell.
type trying struct {
	Matrix
	loadtest.Cell
	inspection *loadtest.Inspection
	requests   loadtest.CellRequests
	seen       seen
	event      fault.Event
	ended      <-chan struct{} // closed when the attempt under the fault has ended
}

// The bounds of the waits within a cell.
const (
	pollEvery = time.Millisecond
	soundWait = 10 * time.Second // until the victim is healthy again
	stepWait  = 5 * time.Second  // until the request reaches the step
	cutMost   = 2 * time.Second  // until the cut has lost something
	cutLeast  = 50 * time.Millisecond
	pauseMost = 2 // TTLs, until a rival has succeeded
)

// try runs the steps that the package documents. It fails if the fault cannot be injected or undone.
func (c *trying) try(ctx context.Context) error {
	flow := c.Trial.Scenario.Flow.Cells
	c.seen = seen{uses: c.Fault.Kind != loadtest.CellCut || flow.Uses(c.Fault.Store, c.Step), committed: flow.Committed(c.Step), ttl: c.Trial.TTL()}
	c.seen.sound = c.warm(ctx)
	c.ended = c.Trial.Begin(ctx, c.base(), c.requests.Hit)
	if c.seen.stood = c.stops(ctx); c.seen.stood {
		if err := c.inject(ctx); err != nil {
			return err
		}
	}
	if err := c.settle(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	c.Verdict, c.Why = c.seen.judge()
	c.Evidence = c.seen.evidence()
	if _, hit := c.seen.fault(); hit && c.seen.stood {
		c.event.Hits, c.event.Seen = 1, map[string]int64{"cells_hit": 1}
	}
	return nil
}

// base returns the address of the victim, which gets no load.
func (c *trying) base() string { return c.Trial.Replicas.Bases()[c.Trial.Victim()] }

// until polls a condition, and returns false if the condition does not hold within the limit.
func until(ctx context.Context, limit time.Duration, is func() bool) bool {
	for end := time.Now().Add(limit); !is(); {
		if time.Now().After(end) || !fault.Wait(ctx, pollEvery) {
			return false
		}
	}
	return true
}

// warm reports whether a request succeeds at the victim.
func (c *trying) warm(ctx context.Context) bool {
	t, victim := c.Trial, c.Trial.Victim()
	if !until(ctx, soundWait, func() bool { return t.Replicas.Healthy(ctx, victim, t.Scenario.Flow.Cells.Health) }) {
		return false
	}
	for _, i := range c.requests.Warm {
		<-t.Begin(ctx, c.base(), i)
		for _, a := range t.History.Record(i.Key).Attempts {
			if a.Replica == victim && a.Outcome == loadtest.OK {
				return true
			}
		}
		until(ctx, t.Grace(), func() bool { return t.History.Record(i.Key).Outcome.Final() })
	}
	return false
}

// stops waits until the victim is stopped at the step, or the request ends without that.
func (c *trying) stops(ctx context.Context) (stood bool) {
	until(ctx, stepWait, func() bool {
		stood = c.Trial.Replicas.Stopped(c.Trial.Victim())
		select {
		case <-c.ended:
			return true
		default:
			return stood
		}
	})
	return stood
}

// inject injects the fault into the victim, which is stopped at the step.
func (c *trying) inject(ctx context.Context) (err error) {
	t := c.Trial
	c.event = fault.Event{What: fmt.Sprintf("replica %d: %v", t.Victim()+1, c.Cell), At: time.Now()}
	if c.seen.storedThen, err = c.effects(ctx); err != nil {
		return err
	}
	c.rival(ctx, 0)
	switch c.Fault.Kind {
	case loadtest.CellKilled:
		err = c.kill(ctx)
	case loadtest.CellPaused:
		err = c.pause(ctx)
	case loadtest.CellCut:
		if c.Fault.Lost == loadtest.CellAnswersLost {
			t.Again(ctx, c.requests.Hit)
		}
		err = c.cut(ctx)
	}
	return err
}

func (c *trying) kill(ctx context.Context) error {
	victim := c.Trial.Victim()
	c.event.Replica, c.event.Ends = victim+1, true
	c.seen.killed = c.Trial.Replicas.Destroy(victim)
	late, cancel := fault.Undoing(ctx)
	defer cancel()
	err := c.Trial.Replicas.Start(late, victim)
	c.event.Until = time.Now()
	return err
}

func (c *trying) pause(ctx context.Context) error {
	t, victim := c.Trial, c.Trial.Victim()
	c.event.Replica = victim + 1
	fault.Wait(ctx, loadtest.CellPause(t.TTL()))
	c.seen.overtaken = until(ctx, pauseMost*t.TTL()-time.Since(c.event.At), func() bool { return t.History.Record(c.requests.Rivals[0].Key).Outcome == loadtest.OK })
	c.seen.stoodOn = t.Replicas.Stopped(victim)
	c.event.Until = time.Now()
	c.seen.paused = c.event.Until.Sub(c.event.At)
	return t.Replicas.Resume(victim)
}

func (c *trying) cut(ctx context.Context) error {
	t, link := c.Trial, c.Links[c.Fault.Store]
	if link == nil {
		return fmt.Errorf("the victim has no link to %s", c.Fault.Store)
	}
	loss, err := link.Lose(c.direction())
	if err != nil {
		return err
	}
	c.seen.connections = loss.Connections()
	err = t.Replicas.Resume(t.Victim())
	until(ctx, cutMost, func() bool {
		select {
		case <-c.ended:
			return true
		default:
			return loss.Chunks() > 0
		}
	})
	fault.Wait(ctx, cutLeast)
	c.seen.lost = loss.Chunks()
	c.seen.connections = max(c.seen.connections, loss.Connections())
	healed := loss.Heal()
	c.event.Until = time.Now()
	if err == nil {
		err = healed
	}
	return err
}

// direction returns the direction that the cut loses.
func (c *trying) direction() nemesis.Direction {
	if c.Fault.Lost == loadtest.CellRequestsLost {
		return nemesis.Requests
	}
	return nemesis.Answers
}

// rival sends one of the requests for the same objects to another replica.
func (c *trying) rival(ctx context.Context, n int) <-chan struct{} {
	bases := c.Trial.Bases
	return c.Trial.Begin(ctx, bases[n%len(bases)], c.requests.Rivals[n])
}

// settle waits until the first attempt has ended and the key and its rivals are decided, and then
// inspects the database.
func (c *trying) settle(ctx context.Context) (err error) {
	t, last := c.Trial, len(c.requests.Rivals)-1
	decided := func(i *loadtest.Intent) bool {
		return until(ctx, t.Grace(), func() bool { return t.History.Record(i.Key).Outcome.Final() })
	}
	<-c.ended
	if t.Replicas.Stopped(t.Victim()) { // the request reached the step too late
		if err := t.Replicas.Resume(t.Victim()); err != nil {
			return err
		}
	}
	decided(c.requests.Hit)
	if !c.seen.stood {
		c.rival(ctx, 0)
	}
	if last > 0 {
		c.rival(ctx, last)
	}
	for _, r := range c.requests.Rivals {
		if !decided(r) {
			c.seen.stuck = append(c.seen.stuck, r.Key)
		}
	}
	c.seen.hit = t.History.Record(c.requests.Hit.Key)
	if c.seen.stored, err = c.effects(ctx); err != nil {
		return err
	}
	c.seen.broken, err = c.broken(ctx)
	return err
}

// effects counts the stored effects of the cell's key.
func (c *trying) effects(ctx context.Context) (int64, error) {
	hit := c.requests.Hit
	return c.inspection.Effects(ctx, c.Trial.Clients[hit.Client].ID, hit.IdempotencyKey())
}
