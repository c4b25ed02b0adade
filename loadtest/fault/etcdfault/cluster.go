// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
)

// LeaderKill kills the leader of the cluster and starts it again, several times.
// The other members elect a new leader, and all leases get their full TTL again.
type LeaderKill struct {
	Client  *clientv3.Client // of all members
	Members []fault.Member   // three
	Times   int
}

// The bounds: an election takes one to two seconds with etcd's defaults.
const (
	electionWait = 15 * time.Second
	askWait      = time.Second
	askEvery     = 20 * time.Millisecond
)

// Inject spreads the kills evenly; each waits for the new leader before the old
// one is started again.
func (l LeaderKill) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, l.Times, 0, l.kill)
}

func (l LeaderKill) kill(ctx context.Context, _ int) (event fault.Event, err error) {
	old, before, err := l.leader(ctx, 0)
	if err != nil {
		return event, err
	}
	event = fault.Event{
		What: "leader " + old.Addr + " killed", At: time.Now(), Hits: 1,
		Seen: map[string]int64{"members_killed": 1},
	}
	whole, cancel := fault.Undoing(ctx)
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
	event.Seen["elections"] = int64(term - before) // more than one after a split vote
	return event, nil
}

// leader waits for a leader in this term or a later one.
func (l LeaderKill) leader(ctx context.Context, term uint64) (fault.Member, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, electionWait)
	defer cancel()
	for {
		for _, m := range l.Members {
			if s := status(ctx, l.Client, m); s != nil && s.Leader == s.Header.MemberId && s.RaftTerm >= term {
				return m, s.RaftTerm, nil
			}
		}
		if !fault.Wait(ctx, askEvery) {
			return fault.Member{}, 0, fmt.Errorf("no leader in term %d or later: %w", term, ctx.Err())
		}
	}
}

// status returns a member's status; nil: it does not answer, or knows no leader.
func status(ctx context.Context, client *clientv3.Client, m fault.Member) *clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	s, err := client.Status(ctx, m.Addr)
	if err != nil || s.Leader == 0 {
		return nil
	}
	return s
}

// NoQuorum removes two of three members for a while: the first time they are killed
// and refuse connections, the next time they are paused and do not answer, and so on.
// Without a quorum no lock is granted, and no lease expires.
type NoQuorum struct {
	Client  *clientv3.Client // of all members
	Members []fault.Member   // three
	Times   int
	Part    float64 // share of the time without a quorum; the rest shows whether the system recovers
}

// Inject spreads the losses evenly. A loss counts if a read fails for want of a
// quorum. All members are brought back, even if the fault fails or ctx ends.
func (q NoQuorum) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, q.Times, 0, func(ctx context.Context, round int) (fault.Event, error) {
		return q.lose(ctx, round, time.Duration(float64(over)/float64(q.Times)*q.Part))
	})
}

// lose removes the quorum once. Each round removes another pair of members.
func (q NoQuorum) lose(ctx context.Context, round int, d time.Duration) (event fault.Event, err error) {
	event = fault.Event{What: "quorum lost", At: time.Now()}
	end := event.At.Add(d)
	for k := range 2 {
		n := (round + k) % len(q.Members)
		take, back, how := fault.Down(q.Members[n].Server, round)
		event.What += fmt.Sprintf(", member %d %s", n+1, how)
		whole, cancel := fault.Undoing(ctx)
		defer cancel()
		defer func() {
			late, done := fault.Undoing(ctx)
			defer done()
			err = errors.Join(err, back(late))
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

// lost reports whether a read that needs a quorum fails.
func (q NoQuorum) lost(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), askWait)
	defer cancel()
	_, err := q.Client.Get(asking, "quorum")
	return err != nil && ctx.Err() == nil
}
