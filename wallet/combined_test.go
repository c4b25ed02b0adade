// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/locktest"
	"shop/wallet"
)

// beside is a Service with the strategy combined, and the wallet of a client. Its first operation stops in its batch.
type beside struct {
	*fixture
	svc     *wallet.Service
	client  uuid.UUID
	id      uuid.UUID
	reached <-chan struct{}
	resume  func()
}

func openBeside(t *testing.T, opening int64, cfg wallet.Config) *beside {
	t.Helper()
	b := &beside{fixture: open(t, wallet.Config{Bonus: cfg.Bonus}), client: uuid.New()}
	b.id = b.wallet(b.client, opening)
	cfg.Database, cfg.Bonus, cfg.Strategy = b.db, b.cfg.Bonus, "combined"
	cfg.Failpoint, b.reached, b.resume = locktest.PauseAt(wallet.AfterCommit)
	b.svc, b.events = b.another(cfg)
	return b
}

// behind runs operations that wait, in this order, while the first one, a credit of 10, is in a batch of its own.
func (b *beside) behind(waiting ...func()) {
	b.t.Helper()
	b.wait(waiting...)()
}

// wait returns when all of them wait. open lets them go on.
func (b *beside) wait(waiting ...func()) (open func()) {
	b.t.Helper()
	var all sync.WaitGroup
	all.Go(func() { b.done(b.svc.Credit(b.t.Context(), newRequest(b.client), b.id, 10)) })
	<-b.reached
	for n, other := range waiting {
		all.Go(other)
		locktest.Eventually(b.t, "it waits", func() bool { return b.svc.Queued() == n+1 })
	}
	return func() {
		b.resume()
		all.Wait()
	}
}

// credit returns a function that credits the wallet, and keeps the outcome.
func (b *beside) credit(req wallet.Request, amount int64, o *outcome) func() {
	return func() { o.Reply, o.Err = b.svc.Credit(b.t.Context(), req, b.id, amount) }
}

// transactions counts the transactions that have stored operations: each has a time of its own.
func (b *beside) transactions() int {
	var times []int64
	for _, op := range b.stored() {
		times = append(times, op.CreatedAt.UnixMilli())
	}
	slices.Sort(times)
	return len(slices.Compact(times))
}

func TestCombined_EachIsDecidedAloneInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	b := openBeside(t, 4, wallet.Config{}) // 15 after the first
	asked := []struct {
		amount  int64 // below 0: a debit
		refused bool
	}{{-9, false}, {-7, true}, {20, false}, {-28, false}, {-1, true}, {30, false}}
	replies := make([]wallet.Reply, len(asked))
	var waiting []func()
	for n, a := range asked {
		waiting = append(waiting, func() {
			var err error
			if a.amount < 0 {
				replies[n], err = b.svc.Debit(t.Context(), newRequest(b.client), b.id, -a.amount)
			} else {
				replies[n], err = b.svc.Credit(t.Context(), newRequest(b.client), b.id, a.amount)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	b.behind(waiting...)
	var made []uuid.UUID // the latest first
	for n, reply := range replies {
		var op wallet.Operation
		if err := json.Unmarshal(reply.Body, &op); err != nil || isRefused(reply) != asked[n].refused || !isRefused(reply) && op.Amount != max(asked[n].amount, -asked[n].amount) {
			t.Errorf("request %d for %d: %s, %v", n, asked[n].amount, reply.Body, err)
		}
		if !asked[n].refused {
			made = slices.Insert(made, 0, op.ID)
		}
	}
	b.mustHave(b.id, 33)
	b.mustHold()
	if n := b.transactions(); n != 2 {
		t.Errorf("%d transactions, want 2: the first credit, and all that waited", n)
	}
	if calls, operations := b.bonus.calls(); calls != 3 || operations != 3 {
		t.Errorf("%d calls of the bonus service for %d operations, want 3 and 3", calls, operations)
	}
	w, err := b.Wallet(t.Context(), b.client, b.id)
	if err != nil || len(w.Entries) != len(made)+1 {
		t.Fatalf("%+v, %v", w, err)
	}
	for n, id := range made {
		if w.Entries[n].Operation != id {
			t.Errorf("entry %d is of %s, want %s: the order in which they were done", n, w.Entries[n].Operation, id)
		}
	}
}

func TestCombined_OneKeyTwiceInABatchIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := openBeside(t, 0, wallet.Config{})
	req := newRequest(b.client)
	reused := req
	reused.Fingerprint[0]++
	var same [2]outcome
	var another, later outcome
	b.behind(b.credit(req, 10, &same[0]), b.credit(req, 10, &same[1]), b.credit(reused, 20, &another))
	b.credit(req, 10, &later)()
	for _, o := range append(same[:], later) {
		b.done(o.Pair())
		if string(o.Reply.Body) != string(same[0].Reply.Body) {
			t.Errorf("%s and %s", same[0].Reply.Body, o.Reply.Body)
		}
	}
	if !later.Reply.Replayed {
		t.Error("a later request does not say that its reply was stored")
	}
	if !errors.Is(another.Err, idempotency.ErrKeyReused) {
		t.Errorf("another request under the key: %v, want ErrKeyReused", another.Err)
	}
	if calls, operations := b.bonus.calls(); calls != 2 || operations != 2 {
		t.Errorf("%d calls of the bonus service for %d operations, want 2 and 2", calls, operations)
	}
	b.mustHave(b.id, 22)
	b.mustHold()
}

// Each call waits for the others. One after the other, each would take BonusTimeout, and fail.
func TestCombined_CallsForAllCreditsSideBySide(t *testing.T) {
	t.Parallel()
	const credits = 8
	var called atomic.Int32
	all := make(chan struct{})
	b := openBeside(t, 0, wallet.Config{Bonus: func(ctx context.Context, r wallet.BonusRequest) (int64, error) {
		if r.Amount == 10 { // the first, in a batch of its own
			return 1, nil
		}
		if called.Add(1) == credits {
			close(all)
		}
		select {
		case <-all:
			return 2, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}})
	outcomes, waiting := make([]outcome, credits), []func(){}
	for n := range outcomes {
		waiting = append(waiting, b.credit(newRequest(b.client), 20, &outcomes[n]))
	}
	b.behind(waiting...)
	for _, o := range outcomes {
		b.done(o.Pair())
	}
	b.mustHave(b.id, 11+credits*22)
	if n := called.Load(); n != credits {
		t.Errorf("%d calls for %d credits", n, credits)
	}
}

func TestCombined_ACreditWithoutABonusFailsAlone(t *testing.T) {
	t.Parallel()
	b := openBeside(t, 0, wallet.Config{})
	requests, outcomes := []wallet.Request{newRequest(b.client), newRequest(b.client), newRequest(b.client)}, make([]outcome, 3)
	open := b.wait(b.credit(requests[0], 10, &outcomes[0]), b.credit(requests[1], 10, &outcomes[1]), b.credit(requests[2], 10, &outcomes[2]))
	b.bonus.mu.Lock()
	b.bonus.fails = 1
	b.bonus.mu.Unlock()
	open()
	failed := 0
	for n, o := range outcomes {
		if unavailable := new(wallet.UnavailableError); errors.As(o.Err, &unavailable) {
			failed++
			b.credit(requests[n], 10, &o)()
		}
		b.done(o.Pair())
	}
	if failed != 1 {
		t.Errorf("%d of three credits failed, want 1", failed)
	}
	b.mustHave(b.id, 44)
	b.mustHold()
}

// breaks runs an operation of 13, which breaks its batch, between two that do not.
func breaks(t *testing.T, cfg wallet.Config) (b *beside, broken outcome, panicked any) {
	t.Helper()
	b = openBeside(t, 0, cfg)
	var done [2]outcome
	b.behind(b.credit(newRequest(b.client), 10, &done[0]), func() {
		defer func() { panicked = recover() }()
		broken.Reply, broken.Err = b.svc.Credit(t.Context(), newRequest(b.client), b.id, 13)
	}, b.credit(newRequest(b.client), 10, &done[1]))
	for _, o := range done {
		b.done(o.Pair())
	}
	b.mustHave(b.id, 30)
	return b, broken, panicked
}

func TestCombined_OneThatCannotBeStoredFailsAlone(t *testing.T) {
	t.Parallel()
	_, o, _ := breaks(t, wallet.Config{
		Bonus: func(context.Context, wallet.BonusRequest) (int64, error) { return 0, nil },
		Encode: func(op wallet.Operation, refusal error) (wallet.Reply, error) {
			if op.Amount == 13 {
				return wallet.Reply{}, errors.New("cannot be encoded")
			}
			return idempotency.JSON(op, refusal)
		},
	})
	if o.Err == nil || errors.Is(o.Err, locking.ErrBusy) || errors.Is(o.Err, locking.ErrOutcomeUnknown) {
		t.Errorf("%s, %v, want an error that calls for no retry", o.Reply.Body, o.Err)
	}
}

func TestCombined_APanicOfOneReachesItsCallerAlone(t *testing.T) {
	t.Parallel()
	b, _, panicked := breaks(t, wallet.Config{Bonus: func(_ context.Context, r wallet.BonusRequest) (int64, error) {
		if r.Amount == 13 {
			panic("the bonus service's client is broken")
		}
		return 0, nil
	}})
	if panicked == nil {
		t.Error("the panic did not reach its caller")
	}
	if n := len(b.stored()); n != 3 {
		t.Errorf("%d operations, want 3", n)
	}
}

func TestCombined_AClientThatLeavesTheQueueDidNothing(t *testing.T) {
	t.Parallel()
	b := openBeside(t, 0, wallet.Config{QueueMax: 1})
	gone := errors.New("the client has gone")
	ctx, leave := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	open := b.wait(func() {
		_, err := b.svc.Credit(ctx, newRequest(b.client), b.id, 10)
		left <- err
	})
	if _, err := b.svc.Credit(t.Context(), newRequest(b.client), b.id, 10); !errors.Is(err, locking.ErrBusy) || b.events.Of(wallet.QueueFull) != 1 {
		t.Errorf("%v, want ErrBusy: the queue is full", err)
	}
	leave(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Errorf("%v, want the cause", err)
	}
	open()
	if calls, _ := b.bonus.calls(); calls != 1 {
		t.Errorf("%d calls of the bonus service, want that of the first", calls)
	}
	b.mustHave(b.id, 11)
	b.mustHold()
}

// Not parallel: a server has one failCommand.
func TestCombined_ABatchWithAnUnknownCommitIsDecidedByItsKeys(t *testing.T) {
	for name, fault := range commitFaults {
		t.Run(name, func(t *testing.T) {
			b := openBeside(t, 0, wallet.Config{})
			var client string
			pause, reached, resume := locktest.PauseAt(wallet.AfterCommit)
			b.svc, b.events, client = b.replica(wallet.Config{Strategy: "combined", Failpoint: pause})
			b.reached, b.resume = reached, resume
			outcomes := make([]outcome, 3)
			open := b.wait(b.credit(newRequest(b.client), 10, &outcomes[0]), b.credit(newRequest(b.client), 20, &outcomes[1]), b.credit(newRequest(b.client), 30, &outcomes[2]))
			b.failCommand(client, times(5), "commitTransaction", fault...)
			open()
			for n, o := range outcomes {
				b.done(o.Pair())
				var op wallet.Operation
				if err := json.Unmarshal(o.Reply.Body, &op); err != nil || op.Amount != int64(10*(n+1)) {
					t.Errorf("credit %d: %s", n, o.Reply.Body)
				}
			}
			if a, r := b.events.Of(wallet.Ambiguous), b.events.Of(wallet.Resolved); a > 0 && r != len(outcomes) || name == "time expired" && a == 0 {
				t.Errorf("%d ambiguous, %d resolved", a, r)
			}
			if calls, operations := b.bonus.calls(); calls != 4 || operations != 4 {
				t.Errorf("%d calls of the bonus service for %d operations, want 4 and 4", calls, operations)
			}
			b.mustHave(b.id, 77)
			b.mustHold()
		})
	}
}

func TestConfig_HotWalletsAreCombined(t *testing.T) {
	t.Parallel()
	var labels locktest.Counts[string]
	c := open(t, wallet.Config{})
	p := c.pair(100, 100)
	svc, _ := c.another(wallet.Config{Database: c.db, Hot: []uuid.UUID{p.a}, Failpoint: func(_ context.Context, _ wallet.Step, strategy string) { labels.Count(strategy, "") }})
	c.done(svc.Debit(t.Context(), newRequest(p.alice), p.a, 1))
	c.done(svc.Debit(t.Context(), newRequest(p.bob), p.b, 1))
	c.done(svc.Pay(t.Context(), newRequest(p.alice), p.pay(1)))
	combined, plain := labels.Of("combined"), labels.Of("lockid")
	if combined == 0 || plain != 2*combined {
		t.Errorf("%d steps with combined, %d with lockid: want the debit of the hot wallet alone combined", combined, plain)
	}
	inc, err := svc.With("inc")
	must(t, err)
	c.done(inc.Debit(t.Context(), newRequest(p.alice), p.a, 1))
	if labels.Of("inc") == 0 {
		t.Error("a named strategy was not used for the hot wallet")
	}
	c.mustHold()
}
