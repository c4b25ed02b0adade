// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// While the synchronous standby is away, the primary commits purchases that a fail-over would lose. None is answered, nor is
// its repetition. When the standby is back, each repetition gets the order, and nothing was sold twice.
func TestBuy_IsNotAnsweredBeforeTheStandbyHasIt(t *testing.T) {
	t.Parallel()
	locktest.Slow(t, "waits for the time limits of a request")
	_, d := pgtest.Own(t, nil, "inventory")
	s := openOn(d, inventory.Config{Locks: locksAt(t, servertest.Env(t, "SHOP_REDIS_URL"), 2*time.Second)})
	sent := map[string]func(context.Context) (inventory.Reply, error){}
	for _, strategy := range []string{"row", "atomic", "optimistic", "serializable", "advisory", "redis+row", "combined"} {
		s.stock(strategy, 5)
		req := newRequest()
		sent[strategy] = func(ctx context.Context) (inventory.Reply, error) {
			return s.BuyWith(ctx, strategy, req, one(strategy))
		}
	}
	s.stock("cancelled", 5)
	buyer := newRequest()
	order, cancel := s.ordered(buyer, one("cancelled")...), requestBy(buyer.Client, uuid.NewString())
	sent["cancelled"] = func(ctx context.Context) (inventory.Reply, error) { return s.Cancel(ctx, cancel, order) }

	d.StandbyAway()
	var all sync.WaitGroup
	for name, send := range sent {
		all.Go(func() {
			for _, what := range []string{"first", "again"} {
				if reply, err := send(t.Context()); !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
					t.Errorf("%s, %s, without the standby: status %d, replayed %t, %v, want ErrOutcomeUnknown", name, what, reply.Status, reply.Replayed, err)
				}
			}
		})
	}
	all.Wait()
	d.StandbyBack()
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		reply, err := sent[name](t.Context())
		if err != nil || !reply.Replayed || isRefused(reply) {
			t.Errorf("%s, with the standby: %s, replayed %t, %v", name, reply.Body, reply.Replayed, err)
		}
		want := int64(4)
		if name == "cancelled" {
			want = 5
		}
		if n := s.left(name); n != want {
			t.Errorf("%s: %d units are left, want %d", name, n, want)
		}
	}
	s.mustHold()
}
