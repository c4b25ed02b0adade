package etcdfault

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/compose/local/stack"
	"shop/loadtest/fault"
)

// threeMembers starts a cluster for one test, and returns a client of all.
func threeMembers(t *testing.T) ([]Member, *clientv3.Client) {
	t.Helper()
	all, err := stack.Attach(env(t, "SHOP_STACK"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := all.Private(t.Context(), "etcd3")
	if err != nil {
		t.Fatal(err)
	}
	servers, err := all.Servers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var members []Member
	var endpoints []string
	for _, s := range servers {
		if s.Env["SHOP_ETCD_ENDPOINTS"] != first.Env["SHOP_ETCD_ENDPOINTS"] {
			continue
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), undoWait)
			defer cancel()
			if err := s.Kill(ctx); err != nil {
				t.Error(err)
			}
		})
		members, endpoints = append(members, Member{s, s.Addr}), append(endpoints, s.Addr)
	}
	if len(members) != 3 {
		t.Fatalf("%d members", len(members))
	}
	return members, connect(t, endpoints...)
}

// mustAnswer asks each member for what only a quorum can tell.
func mustAnswer(t *testing.T, members []Member) {
	t.Helper()
	for _, m := range members {
		client := connect(t, m.Endpoint)
		ctx, cancel := context.WithTimeout(t.Context(), electionWait)
		if _, err := client.Get(ctx, "anything"); err != nil {
			t.Errorf("member %s does not answer: %v", m.Endpoint, err)
		}
		cancel()
	}
}

// fatal ends a run when a member is killed.
type fatal struct {
	fault.Server
	killed func()
}

func (f fatal) Kill(ctx context.Context) error {
	defer f.killed()
	return f.Server.Kill(ctx)
}

// unsure dies, and nobody knows.
type unsure struct{ fault.Server }

var errUnsure = errors.New("no answer")

func (u unsure) Kill(ctx context.Context) error { return errors.Join(u.Server.Kill(ctx), errUnsure) }

// wrap stands in front of all members.
func wrap(members []Member, in func(fault.Server) fault.Server) (wrapped []Member) {
	for _, m := range members {
		wrapped = append(wrapped, Member{in(m.Server), m.Endpoint})
	}
	return wrapped
}

// One after the other, as a cluster takes a while to start.
func TestOutages_AreSeenAndUndoneInEveryEnding(t *testing.T) {
	t.Parallel()
	members, client := threeMembers(t)

	events, err := LeaderKill{members, client, 2}.Strike(t.Context(), 6*time.Second)
	if err != nil || len(events) != 2 {
		t.Errorf("leader-kill: %v, events %+v; want two", err, events)
	}
	for _, e := range events {
		if e.Hits != 1 || e.Seen["members_killed"] != 1 || e.Seen["elections"] < 1 || e.Until.Sub(e.At) < 1500*time.Millisecond {
			t.Errorf("leader-kill: %+v", e)
		}
	}
	mustAnswer(t, members)

	events, err = NoQuorum{Members: members, Client: client}.Strike(t.Context(), 6*time.Second)
	if err != nil || len(events) != 1 {
		t.Fatalf("no-quorum: %v, events %+v; want one", err, events)
	}
	if e := events[0]; e.Hits != 1 || e.Seen["quorum_losses"] != 1 || e.Seen["members_killed"] != 2 || e.Until.Sub(e.At) < 2*time.Second {
		t.Errorf("no-quorum: %+v", e)
	}
	mustAnswer(t, members)

	for name, strike := range map[string]func(context.Context, []Member) ([]fault.Event, error){
		"leader-kill": func(ctx context.Context, m []Member) ([]fault.Event, error) {
			return LeaderKill{m, client, 1}.Strike(ctx, time.Hour)
		},
		"no-quorum": func(ctx context.Context, m []Member) ([]fault.Event, error) {
			return NoQuorum{m, client, 0.5}.Strike(ctx, time.Hour)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		events, err := strike(ctx, wrap(members, func(s fault.Server) fault.Server { return fatal{s, cancel} }))
		if !errors.Is(err, context.Canceled) || len(events) != 1 || events[0].Hits != 1 {
			t.Errorf("%s called off: %v, %+v; want what it did until then, and %v", name, err, events, context.Canceled)
		}
		mustAnswer(t, members)
		if events, err = strike(ctx, members); !errors.Is(err, context.Canceled) || len(events) > 0 {
			t.Errorf("%s after the end: %v, %+v; want nothing", name, err, events)
		}
		events, err = strike(t.Context(), wrap(members, func(s fault.Server) fault.Server { return unsure{s} }))
		if !errors.Is(err, errUnsure) || len(events) > 0 && events[0].Hits > 0 {
			t.Errorf("%s without an answer: %v, %+v; want the error, and no evidence", name, err, events)
		}
		mustAnswer(t, members)
	}
}
