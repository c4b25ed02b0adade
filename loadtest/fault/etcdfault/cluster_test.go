// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
	"shop/locking"
	"shop/locking/locktest"
)

// mustGrant waits until a lock is granted again.
func mustGrant(t *testing.T, store locking.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		l, err := store.TryAcquire(ctx, "key")
		if err == nil {
			_ = store.Release(ctx, l)
			return
		}
		if !fault.Wait(ctx, askEvery) {
			t.Fatalf("no lock is granted any more: %v", err)
		}
	}
}

// mustBeUp waits until each member answers and knows the leader.
func mustBeUp(t *testing.T, client *clientv3.Client, members []fault.Member) {
	t.Helper()
	for i, m := range members {
		locktest.Eventually(t, fmt.Sprintf("member %d is back", i+1), func() bool { return status(t.Context(), client, m) != nil })
	}
}

func TestLeaderKill_AnotherIsElectedEachTime(t *testing.T) {
	client, members := three(t)
	store := open(t, client, "lock", 5*time.Second)
	began := time.Now()
	events, err := LeaderKill{Client: client, Members: members, Times: 2}.Inject(t.Context(), 4*time.Second)
	seen := fault.Seen(events)
	t.Logf("%v in %v", seen, time.Since(began).Round(time.Millisecond))
	if err != nil || len(events) != 2 || seen["members_killed"] != 2 || seen["elections"] < 2 {
		t.Errorf("%+v, %v", events, err)
	}
	mustGrant(t, store)
}

func TestLeaderKill_CancelledItStartsTheLeaderAgain(t *testing.T) {
	client, members := three(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range members {
		members[i].Server = cancelling{members[i].Server, cancel}
	}
	if _, err := (LeaderKill{Client: client, Members: members, Times: 1}).Inject(ctx, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	mustBeUp(t, client, members)
}

// cancelling is a node whose kill cancels the run.
type cancelling struct {
	fault.Node
	cancel func()
}

func (c cancelling) Kill(ctx context.Context) error {
	defer c.cancel()
	return c.Node.Kill(ctx)
}

func TestNoQuorum_GrantsNothingUntilTheQuorumIsBack(t *testing.T) {
	client, members := three(t)
	store := open(t, client, "lock", 2*time.Second)
	began := time.Now()
	events, err := NoQuorum{Client: client, Members: members, Times: 2, Part: 0.5}.Inject(t.Context(), 6*time.Second)
	t.Logf("%v in %v", fault.Seen(events), time.Since(began).Round(time.Millisecond))
	if err != nil || fault.Seen(events)["quorum_losses"] != 2 {
		t.Errorf("%+v, %v", events, err)
	}
	mustBeUp(t, client, members)
	mustGrant(t, store)
}
