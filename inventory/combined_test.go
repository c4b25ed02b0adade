// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// behind lets one purchase of the sku enter its transaction and stop there, while others queue up behind
// it. The others are sent one after the other. open lets the first go on.
func (s *shop) behind(sku string, others ...func()) (open func()) {
	s.T.Helper()
	var all sync.WaitGroup
	release := s.Hold(`SELECT FROM products WHERE sku = $1 FOR UPDATE`, sku)
	all.Go(func() {
		if _, err := s.Buy(s.T.Context(), newRequest(), one(sku)); err != nil {
			s.T.Error(err)
		}
	})
	locktest.Eventually(s.T, "the first purchase waits for the row", func() bool { return s.Waiting() == 1 })
	for n, other := range others {
		all.Go(other)
		locktest.Eventually(s.T, "a purchase waits behind it", func() bool { return s.Queued() == n+1 })
	}
	return func() {
		release()
		all.Wait()
	}
}

func buying(sku string, quantity int64) []inventory.Line {
	return []inventory.Line{{SKU: sku, Quantity: quantity}}
}

func TestCombined_EachBuyerIsDecidedAloneInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	s.stock("A", 10)
	wanted := []int64{4, 9, 3, 1, 2, 1} // after the first purchase 9 are left: 4 yes, 9 no, 3 yes, 1 yes, 2 no, 1 yes
	replies := make([]inventory.Reply, len(wanted))
	var others []func()
	for n, quantity := range wanted {
		others = append(others, func() {
			var err error
			if replies[n], err = s.Buy(t.Context(), newRequest(), buying("A", quantity)); err != nil {
				t.Error(err)
			}
		})
	}
	s.behind("A", others...)()
	for n, reply := range replies {
		if refused := n == 1 || n == 4; isRefused(reply) != refused {
			t.Errorf("purchase %d of %d: %s", n, wanted[n], reply.Body)
			continue
		} else if refused {
			continue
		}
		var order inventory.Order
		if err := json.Unmarshal(reply.Body, &order); err != nil || order.Lines[0].Quantity != wanted[n] {
			t.Errorf("purchase %d of %d got the order %s, %v", n, wanted[n], reply.Body, err)
		}
	}
	if got := s.left("A"); got != 0 {
		t.Errorf("%d left, want 0", got)
	}
	if got := s.Number(`SELECT count(DISTINCT created_at) FROM idempotency_keys`); got != 2 {
		t.Errorf("%d transactions, want 2: the first purchase, and all that waited", got)
	}
	s.mustHold()
}

func TestCombined_OneKeyTwiceInABatchBuysOnce(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	s.stock("A", 10)
	req, reused, replies := newRequest(), newRequest(), make([]inventory.Reply, 3)
	reused.Client, reused.Key, reused.Fingerprint = req.Client, req.Key, [32]byte{9}
	var another error
	s.behind("A", func() { replies[0], _ = s.Buy(t.Context(), req, one("A")) },
		func() { replies[1], _ = s.Buy(t.Context(), req, one("A")) },
		func() { _, another = s.Buy(t.Context(), reused, buying("A", 2)) })()
	replies[2], _ = s.Buy(t.Context(), req, one("A"))
	for _, reply := range replies {
		if len(reply.Body) == 0 || string(reply.Body) != string(replies[0].Body) {
			t.Errorf("the replies differ: %s and %s", replies[0].Body, reply.Body)
		}
	}
	if !replies[2].Replayed {
		t.Error("a later request does not say that its reply was stored")
	}
	if !errors.Is(another, idempotency.ErrKeyReused) {
		t.Errorf("another request under the key: %v, want ErrKeyReused", another)
	}
	if got := s.left("A"); got != 8 {
		t.Errorf("%d left, want 8", got)
	}
	s.mustHold()
}

func TestCombined_AKeyThatAnotherTransactionHasDelaysItsOwnPurchaseAlone(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	s.stock("A", 10)
	taken := newRequest()
	var errs [3]error
	open := s.behind("A", func() { _, errs[0] = s.Buy(t.Context(), newRequest(), one("A")) },
		func() { _, errs[1] = s.Buy(t.Context(), taken, one("A")) },
		func() { _, errs[2] = s.Buy(t.Context(), newRequest(), one("A")) })
	release := s.Hold(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, taken.Client, taken.Key, taken.Fingerprint[:])
	open()
	release()
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("the purchases beside it: %v, %v", errs[0], errs[2])
	}
	if !errors.Is(errs[1], idempotency.ErrInProgress) {
		t.Errorf("%v, want ErrInProgress", errs[1])
	}
	if got := s.left("A"); got != 7 {
		t.Errorf("%d left, want 7", got)
	}
	s.mustHold()
}

func TestCombined_AnUnknownProductIsNotStored(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	req := newRequest()
	if _, err := s.Buy(t.Context(), req, one("A")); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	s.stock("A", 1)
	if reply, err := s.Buy(t.Context(), req, one("A")); err != nil || isRefused(reply) {
		t.Errorf("under the same key, when the product exists: %s, %v", reply.Body, err)
	}
}

func TestCombined_AClientThatLeavesTheQueueBuysNothing(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	s.stock("A", 10)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	open := s.behind("A", func() {
		_, err := s.Buy(ctx, newRequest(), one("A"))
		left <- err
	})
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	open()
	if got := s.left("A"); got != 9 {
		t.Errorf("%d left, want 9", got)
	}
	s.mustHold()
}

func TestConfig_HotProductsAreCombined(t *testing.T) {
	t.Parallel()
	var labels locktest.Counts[string]
	s := openWithRedis(t, inventory.Config{Strategy: "redis+row", Hot: []string{"A"}, Failpoint: func(_ context.Context, _ inventory.Step, strategy string) { labels.Count(strategy, "") }})
	s.stock("A", 10)
	s.stock("B", 10)
	for _, lines := range [][]inventory.Line{one("A"), one("B"), slices.Concat(one("A"), one("B"))} {
		if _, err := s.Buy(t.Context(), newRequest(), lines); err != nil {
			t.Error(err)
		}
	}
	combined, plain := labels.Of("combined"), labels.Of("redis+row")
	if combined == 0 || plain != 2*combined {
		t.Errorf("%d steps with combined, %d with redis+row: want A alone combined", combined, plain)
	}
	if _, err := s.BuyWith(t.Context(), "row", requestBy(uuid.New(), "k"), one("A")); err != nil || labels.Of("row") == 0 {
		t.Errorf("with a named strategy: %v", err)
	}
	s.mustHold()
}

func TestConfig_HotProductsNeedALockStore(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	if _, err := inventory.New(inventory.Config{Pool: s.Pool, Strategy: "row", Hot: []string{"A"}}); err == nil {
		t.Error("no error")
	}
}

// The purchases of a batch that Close ends did nothing, and do not go on without the lock.
func TestCombined_ABatchThatCloseEndsIsBusy(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	s.stock("A", 3)
	release := s.Hold(`SELECT FROM products WHERE sku = $1 FOR UPDATE`, "A")
	bought := locktest.Beside(func() (inventory.Reply, error) { return s.Buy(t.Context(), newRequest(), one("A")) })
	locktest.Eventually(t, "the purchase waits for the row", func() bool { return s.Waiting() == 1 })
	s.Close()
	release()
	if o := <-bought; !errors.Is(o.Err, locking.ErrBusy) || errors.Is(o.Err, locking.ErrOutcomeUnknown) {
		t.Errorf("%s, %v, want ErrBusy", o.Reply.Body, o.Err)
	}
	if got := s.left("A"); got != 3 {
		t.Errorf("%d left, want 3", got)
	}
}

func TestCombined_WithoutAnAnswerFromRedisTheRowLockDecides(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{Strategy: "combined", Locks: locksAt(t, "redis://127.0.0.1:1", time.Second)})
	s.stock("A", 3)
	for range 3 {
		if _, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil {
			t.Error(err)
		}
	}
	if got := s.events.Of(inventory.Degraded); got != 3 {
		t.Errorf("%d purchases with the row lock alone, want 3", got)
	}
	s.mustHold()
}

// Each COMMIT of its batches is lost. The purchase is then decided alone, by the row lock and its key.
func TestCombined_AnOutcomeThatStaysUnknownIsDecidedByTheRowLock(t *testing.T) {
	t.Parallel()
	s, p, _ := armed(t, "combined", nil)
	cfg, encode := s.armedCfg, s.armedCfg.Encode
	const lost = 5 // the default of combine.Config.Tries
	tries := 0
	cfg.Encode = func(o inventory.Order, refusal error) (inventory.Reply, error) {
		if tries++; tries <= lost {
			p.OnRequest(func(request []byte, client, server net.Conn) bool {
				if request[0] == 0 { // of a new connection: pgx cancels what the last cut has left
					return true
				}
				p.OnRequest(nil)
				return servertest.Cuts["request lost"](request, client, server)
			})
		}
		return encode(o, refusal)
	}
	s.Service, s.events = s.another(cfg)
	s.stock("A", 2)
	if reply, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil || reply.Status != 201 || tries != lost+1 {
		t.Errorf("%+v, %v after %d tries, want an order after %d", reply, err, tries, lost+1)
	}
	if got := s.left("A"); got != 1 {
		t.Errorf("%d left, want 1", got)
	}
	s.mustHold()
}
