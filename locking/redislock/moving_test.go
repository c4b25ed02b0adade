// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// A slot of a Cluster moves from node to node and back, while three clients use a lock in it. Requests are refused for as
// long as it moves. The clients wait, as long as their MaxWait allows, and exclude each other throughout.
func TestCluster_ClientsWaitWhileTheirSlotMoves(t *testing.T) {
	locktest.Slow(t, "starts a Cluster")
	t.Parallel()
	const ttl, tag = 10 * time.Second, redistest.Tag
	servers := redistest.Cluster(t, 2)
	nodes := [2]redistest.Node{redistest.NodeAt(t, servers[0].Addr), redistest.NodeAt(t, servers[1].Addr)}
	g := redistest.Target{URL: "redis://" + servers[0].Addr, Cluster: true}
	seen := redistest.NewRefusals()
	client := g.Client(t, tuned(ttl))
	client.AddHook(seen)
	o := Options{HashTag: tag, Prefix: redistest.Prefix(t, g.URL)}
	var (
		inside, grants atomic.Int64
		fence          atomic.Int64
		workers        sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	for range 3 {
		store := storeOf(t, client, ttl, o)
		workers.Go(func() {
			for ctx.Err() == nil {
				err := locking.Do(ctx, store, locking.Options{MaxWait: 30 * time.Second}, []string{"a", "b"}, func(_ context.Context, l locking.Lease) error {
					defer inside.Add(-1)
					if inside.Add(1) > 1 {
						return errors.New("two holders")
					}
					if last := fence.Swap(int64(l.Fence)); int64(l.Fence) <= last {
						return fmt.Errorf("fence %d after %d", l.Fence, last)
					}
					grants.Add(1)
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer func() {
		stop()
		workers.Wait()
		t.Logf("%d grants, %v", grants.Load(), seen)
	}()
	progress := func(when string) {
		t.Helper()
		before := grants.Load()
		locktest.Eventually(t, "grants "+when, func() bool { return t.Failed() || grants.Load() > before+3 })
	}
	refused := func(word, when string) {
		t.Helper()
		refusals := seen.Of(word)
		locktest.Eventually(t, word+" "+when, func() bool { return t.Failed() || seen.Of(word) > refusals+3 })
	}
	slot := int(nodes[0].ClusterKeySlot(t.Context(), tag).Val())
	from, to := nodes[0], nodes[1]
	if !redistest.Owns(t, from, slot) {
		from, to = to, from
	}
	progress("before")
	lone := storeOf(t, client, ttl, o)
	for range 2 {
		held := locktest.Taken(t, lone, "lone")
		to.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID)
		from.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID)
		if err := lone.Release(t.Context(), held); err != nil {
			t.Errorf("a lease of one key is not released while the slot moves: %v", err)
		}
		refused("TRYAGAIN", "at the node that has the fence, and not the lock")
		wantReason(t, storeOf(t, client, ttl, o))
		from.MoveKeys(slot, to)
		refused("TRYAGAIN", "at the node that gets them")
		from.Must("CLUSTER", "SETSLOT", slot, "NODE", to.ID)
		refused("MOVED", "from each node to the other")
		to.Must("CLUSTER", "SETSLOT", slot, "NODE", to.ID)
		progress("after the slot has moved")
		from, to = to, from
	}
	from.Must("CLUSTER", "DELSLOTS", slot)
	refused("CLUSTERDOWN", "without a node for the slot")
	from.Must("CLUSTER", "ADDSLOTS", slot)
	progress("with a node for the slot")
}

// wantReason checks that a request for one time says why it was refused: no other client holds the key.
func wantReason(t *testing.T, store *opened) {
	t.Helper()
	_, err := store.TryAcquire(t.Context(), "free")
	if !errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "TRYAGAIN") || strings.Contains(err.Error(), locking.ErrBusy.Error()) {
		t.Errorf("got %v, want ErrBusy, because the slot is moving", err)
	}
}
