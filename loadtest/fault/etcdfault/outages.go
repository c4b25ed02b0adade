package etcdfault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"shop/loadtest/fault"
)

// Member is one of an etcd cluster.
type Member struct {
	fault.Server
	Endpoint string // host:port
}

const (
	electionWait = 10 * time.Second // an election takes one or two seconds
	answerWait   = time.Second
	lookEvery    = 20 * time.Millisecond
	undoWait     = 30 * time.Second // members elect before they are ready
)

// LeaderKill kills the member that leads, lets the others elect, and starts it again.
type LeaderKill struct {
	Members []Member
	Client  *clientv3.Client
	Times   int // at most: elections take their time
}

// Strike gives each kill an equal part of the time. For half of it, and until there
// is another leader, the member is dead; then all live.
func (k LeaderKill) Strike(ctx context.Context, over time.Duration) (events []fault.Event, err error) {
	half := over / time.Duration(2*k.Times)
	end := time.Now().Add(over)
	for len(events) < k.Times && time.Now().Before(end) && ctx.Err() == nil {
		event, err := k.kill(ctx, half)
		if event.Hits > 0 {
			events = append(events, event)
		}
		if err != nil {
			return events, fmt.Errorf("kill the leader: %w", err)
		}
		pause(ctx, min(half, time.Until(end)))
	}
	return events, ctx.Err()
}

func (k LeaderKill) kill(ctx context.Context, dead time.Duration) (fault.Event, error) {
	n, term, err := await(ctx, k.Client, k.Members, leads)
	if err != nil {
		return fault.Event{}, err
	}
	others := slices.Delete(slices.Clone(k.Members), n, n+1)
	event, err := outage(ctx, k.Members[n:n+1], dead, func(seen map[string]int64) error {
		_, now, err := await(ctx, k.Client, others, leads)
		if err == nil {
			seen["elections"] = int64(now - term)
		}
		return err
	})
	event.What = fmt.Sprintf("etcd member %d, the leader, killed", n+1)
	return event, err
}

// NoQuorum kills the majority of the members at once, and starts them again.
type NoQuorum struct {
	Members []Member
	Client  *clientv3.Client
	Part    float64 // of the time that they are dead, a third if it is 0; the rest shows whether service comes back
}

// Strike draws who dies. They are dead at least until a survivor knows no leader.
func (q NoQuorum) Strike(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	members := slices.Clone(q.Members)
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	most := len(members)/2 + 1
	dead := time.Duration(float64(over) * cmp.Or(q.Part, 1.0/3))
	event, err := outage(ctx, members[:most], dead, func(seen map[string]int64) error {
		_, _, err := await(ctx, q.Client, members[most:], leaderless)
		if err == nil {
			seen["quorum_losses"] = 1
		}
		return err
	})
	event.What = fmt.Sprintf("%d of %d etcd members killed", most, len(members))
	if err != nil {
		return []fault.Event{event}, fmt.Errorf("take the quorum away: %w", err)
	}
	return []fault.Event{event}, ctx.Err()
}

// outage kills the members, all at once. When it was seen, and they were dead for
// long enough, it starts them again: also if one of these fails, or ctx ends.
func outage(ctx context.Context, members []Member, dead time.Duration, see func(seen map[string]int64) error) (fault.Event, error) {
	event := fault.Event{At: time.Now(), Seen: map[string]int64{}}
	err := each(ctx, members, Member.Kill)
	if err == nil {
		event.Hits = 1
		event.Seen["members_killed"] = int64(len(members))
		if err = see(event.Seen); err == nil {
			pause(ctx, dead-time.Since(event.At))
		}
	}
	err = errors.Join(err, each(ctx, members, Member.Start))
	event.Until = time.Now()
	return event, err
}

// each does it to all side by side: none may be ready without another. It is not
// called off with ctx: what is done in part cannot be undone.
func each(ctx context.Context, members []Member, do func(Member, context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	var all errgroup.Group
	for _, m := range members {
		all.Go(func() error { return do(m, ctx) })
	}
	return all.Wait()
}

func leads(s *clientv3.StatusResponse) bool      { return s.Leader == s.Header.MemberId }
func leaderless(s *clientv3.StatusResponse) bool { return s.Leader == 0 }

// await waits until a member says so of itself: of several, the one with the highest
// term. Who has lost the lead, and does not know it yet, has a lower one.
func await(ctx context.Context, client *clientv3.Client, members []Member, so func(*clientv3.StatusResponse) bool) (n int, term uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, electionWait)
	defer cancel()
	for {
		for i, m := range members {
			asked, cancel := context.WithTimeout(ctx, answerWait)
			s, err := client.Status(asked, m.Endpoint)
			cancel()
			if err == nil && so(s) && s.RaftTerm > term {
				n, term = i, s.RaftTerm
			}
		}
		if term > 0 {
			return n, term, nil
		}
		if !pause(ctx, lookEvery) {
			return 0, 0, fmt.Errorf("etcd's members do not say what they should: %w", ctx.Err())
		}
	}
}

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
