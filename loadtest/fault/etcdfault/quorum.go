package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
)

// NoQuorum takes two of three members away for a while, and brings them back:
// the first time killed, so that they refuse, then stopped, so that they are
// silent, and so on. No lock is granted meanwhile, and no lease runs out.
type NoQuorum struct {
	Client  *clientv3.Client // of all members
	Members []Member         // three; those that are a fault.Freezer are stopped too
	Times   int
	Part    float64 // of the time that they are away; the rest shows whether the system comes back
}

// Inject spreads the losses evenly. A loss counts if a read found that there is
// no quorum. All members are brought back in every ending.
func (q NoQuorum) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	var events []fault.Event
	began := time.Now()
	for i := range q.Times {
		due := over * time.Duration(i) / time.Duration(q.Times)
		if !fault.Wait(ctx, due-time.Since(began)) {
			break
		}
		event, err := q.lose(ctx, i, time.Duration(float64(over)/float64(q.Times)*q.Part))
		events = append(events, event)
		if err != nil {
			return events, fmt.Errorf("no quorum: %w", err)
		}
	}
	return events, ctx.Err()
}

// lose is one loss. Other members are lost each time.
func (q NoQuorum) lose(ctx context.Context, round int, d time.Duration) (event fault.Event, err error) {
	event = fault.Event{What: "quorum lost", At: time.Now()}
	end := event.At.Add(d)
	// Not to be called off half way: a kill that is late would undo the start.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), d+undoWait)
	defer cancel()
	for k := range 2 {
		take, back, how := outage(q.Members[(round+k)%len(q.Members)].Server, round)
		event.What += fmt.Sprintf(", member %d %s", (round+k)%len(q.Members)+1, how)
		defer func() {
			err = errors.Join(err, back(whole))
			event.Until = time.Now()
		}()
		if err := take(whole); err != nil {
			return event, err
		}
	}
	if q.lost(ctx) {
		event.Hits, event.Seen = 1, map[string]int64{"quorum_losses": 1}
	}
	fault.Wait(ctx, time.Until(end))
	return event, nil
}

// outage is how a member goes away and comes back.
func outage(s fault.Server, round int) (take, back func(context.Context) error, how string) {
	if f, ok := s.(fault.Freezer); ok && round%2 == 1 {
		return f.Pause, f.Resume, "stopped"
	}
	return s.Kill, s.Start, "killed"
}

// lost asks for what only a quorum can answer.
func (q NoQuorum) lost(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), askWait)
	defer cancel()
	_, err := q.Client.Get(asking, "quorum")
	return err != nil && ctx.Err() == nil
}
