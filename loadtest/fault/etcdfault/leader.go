package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
)

// Member is one of the members of a cluster.
type Member struct {
	Addr   string // host:port, for clients
	Server fault.Server
}

// LeaderKill kills the leader of the cluster and starts it again, several times.
// The others elect another; leases get their TTL again.
type LeaderKill struct {
	Client  *clientv3.Client // of all members
	Members []Member         // three
	Times   int
}

// The bounds: an election takes one to two seconds with etcd's defaults.
const (
	electionWait = 15 * time.Second
	undoWait     = 30 * time.Second
	askWait      = time.Second
	askEvery     = 20 * time.Millisecond
)

// Inject spreads the kills evenly; each waits for the new leader before the old
// one is started again.
func (l LeaderKill) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	var events []fault.Event
	began := time.Now()
	for i := range l.Times {
		due := over * time.Duration(i) / time.Duration(l.Times)
		if !fault.Wait(ctx, due-time.Since(began)) {
			break
		}
		event, err := l.kill(ctx)
		if event.Hits > 0 {
			events = append(events, event)
		}
		if err != nil {
			return events, fmt.Errorf("kill the leader: %w", err)
		}
	}
	return events, ctx.Err()
}

func (l LeaderKill) kill(ctx context.Context) (event fault.Event, err error) {
	old, before, err := l.leader(ctx, 0)
	if err != nil {
		return event, err
	}
	event = fault.Event{
		What: "leader " + old.Addr + " killed", At: time.Now(), Hits: 1,
		Seen: map[string]int64{"members_killed": 1},
	}
	// Not to be called off half way: a kill that is late would undo the start.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	defer func() {
		err = errors.Join(err, old.Server.Start(whole))
		event.Until = time.Now()
	}()
	if err := old.Server.Kill(whole); err != nil {
		return event, err
	}
	_, term, err := l.leader(ctx, before+1)
	if err != nil {
		return event, err
	}
	event.Seen["elections"] = int64(term - before) // a split vote takes more than one
	return event, nil
}

// leader finds the leader, in a term that is not older than this.
func (l LeaderKill) leader(ctx context.Context, term uint64) (Member, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, electionWait)
	defer cancel()
	for {
		for _, m := range l.Members {
			if s := status(ctx, l.Client, m); s != nil && s.Leader == s.Header.MemberId && s.RaftTerm >= term {
				return m, s.RaftTerm, nil
			}
		}
		if !fault.Wait(ctx, askEvery) {
			return Member{}, 0, fmt.Errorf("no member leads: %w", ctx.Err())
		}
	}
}

// status is what a member says of itself; nil: it does not answer.
func status(ctx context.Context, client *clientv3.Client, m Member) *clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	s, err := client.Status(ctx, m.Addr)
	if err != nil || s.Leader == 0 {
		return nil
	}
	return s
}
