// SPDX-License-Identifier: MIT

package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Event is one action of a fault.
type Event struct {
	What  string // "replica 2 killed"; "": nothing was done
	At    time.Time
	Until time.Time        // when it was undone; At if there was nothing to undo
	Hits  int64            // how often the action hit something
	Seen  map[string]int64 // evidence, by name; summed over events

	// Replica is the process that the action hit, from 1; 0: none. If set, the event is evidence
	// only if it hit a request: one that got no answer, if the action Ends the process, or else
	// one that had to wait.
	Replica int
	Ends    bool
	Steady  bool     // no outage: the service must keep up while it lasts
	Keys    []string // idempotency keys whose COMMIT was cut or left in doubt, as a proxy saw them
}

// Fault is injected over a time, under load. Inject returns when everything is undone. If ctx
// ends early, Inject undoes its actions, and returns the events so far.
type Fault interface {
	Inject(ctx context.Context, over time.Duration) ([]Event, error)
}

// None does nothing.
type None struct{}

// Inject returns at once.
func (None) Inject(context.Context, time.Duration) ([]Event, error) { return nil, nil }

// Victims are the replicas of a service, by number from 0.
type Victims interface {
	Len() int
	Kill(ctx context.Context, n int) error                   // SIGKILL: no shutdown, no flushing
	Start(ctx context.Context, n int, extra ...string) error // on the same address, with extra arguments; returns when the replica answers
}

// Pausable are replicas that can be paused and resumed.
type Pausable interface {
	Pause(n int) error  // SIGSTOP: connections stay open, nothing answers
	Resume(n int) error // no error if the replica is not paused
}

// Server can be killed, and started again with its address and data.
type Server interface {
	Kill(ctx context.Context) error
	Start(ctx context.Context) error // returns when the server answers
}

// Node is a server that can also be paused: its connections stay open, and nothing answers.
type Node interface {
	Server
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Down returns how a round takes a node away and brings it back: every second one pauses it, the others kill it.
func Down(n Node, round int) (take, back func(context.Context) error, how string) {
	if round%2 == 1 {
		return n.Pause, n.Resume, "paused"
	}
	return n.Kill, n.Start, "killed"
}

// Member is a node of a cluster.
type Member struct {
	Addr   string // host:port, for clients
	Dir    string // its data directory
	Server Node
}

// Wait waits for d, and returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Within waits until c is closed, and returns false if that takes longer than d or ctx ends.
func Within(ctx context.Context, d time.Duration, c <-chan struct{}) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-c:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

// undoWait bounds the undoing of one action. A member of a replica set may avoid another
// member for a minute.
const undoWait = 2 * time.Minute

// Undoing returns a context for actions that must complete even if ctx has ended: undoing a fault,
// and kills, since a kill that takes effect late would undo the start after it.
func Undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoWait)
}

// Seen sums the evidence of events.
func Seen(events []Event) map[string]int64 {
	seen := map[string]int64{}
	for _, e := range events {
		for name, n := range e.Seen {
			seen[name] += n
		}
	}
	return seen
}

// Series calls once several times, spread evenly over a time. It begins no call that needs more
// time than is left; needs 0: it always begins.
func Series(ctx context.Context, over time.Duration, times int, needs time.Duration, once func(ctx context.Context, round int) (Event, error)) (events []Event, err error) {
	began := time.Now()
	for round := range times {
		due := over * time.Duration(round) / time.Duration(times)
		if !Wait(ctx, due-time.Since(began)) || needs > 0 && over-time.Since(began) < needs {
			break
		}
		event, err := once(ctx, round)
		if event.What != "" {
			events = append(events, event)
		}
		if err != nil {
			return events, fmt.Errorf("%s: %w", cmp.Or(event.What, "not done"), err)
		}
	}
	return events, ctx.Err()
}

// Repeat calls once at intervals, at least once, and reports all hits as one event.
func Repeat(ctx context.Context, over, every time.Duration, what, evidence string, once func(context.Context) (hits int64, err error)) ([]Event, error) {
	event := Event{What: what, At: time.Now()}
	for end := event.At.Add(over); ; {
		n, err := once(ctx)
		event.Hits += n
		event.Until, event.Seen = time.Now(), map[string]int64{evidence: event.Hits}
		if err != nil {
			return []Event{event}, fmt.Errorf("%s: %w", what, err)
		}
		if !Wait(ctx, min(every, time.Until(end))) || !time.Now().Before(end) {
			return []Event{event}, ctx.Err()
		}
	}
}

// Restart kills a server and starts it again: every connection breaks, every open
// transaction is rolled back, and requests under way get no answer.
type Restart struct {
	Server   Server
	Name     string
	Evidence string // name of the evidence that counts the restarts
	Times    int
	Dead     float64 // share of the time for which the server stays dead; 0: it starts at once
}

// Inject spreads the restarts evenly. It starts the server again even if it fails or ctx ends.
func (r Restart) Inject(ctx context.Context, over time.Duration) ([]Event, error) {
	return Series(ctx, over, r.Times, 0, func(ctx context.Context, _ int) (Event, error) {
		event := Event{What: r.Name + " killed", At: time.Now(), Hits: 1, Seen: map[string]int64{r.Evidence: 1}}
		whole, cancel := Undoing(ctx)
		defer cancel()
		killed := r.Server.Kill(whole)
		if killed == nil {
			Wait(ctx, time.Duration(r.Dead*float64(over)/float64(r.Times)))
		}
		late, done := Undoing(ctx)
		defer done()
		started := r.Server.Start(late)
		event.Until = time.Now()
		return event, errors.Join(killed, started)
	})
}
