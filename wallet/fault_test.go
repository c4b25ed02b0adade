// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/locktest"
	"shop/wallet"
)

// kinds are the kinds of operation: what each does, and the balances after it of a pair of
// wallets that began with 100 and 100.
var kinds = map[string]struct {
	do   func(context.Context, *wallet.Service, pair, wallet.Request) (wallet.Reply, error)
	a, b int64
}{
	"credit": {func(ctx context.Context, s *wallet.Service, p pair, r wallet.Request) (wallet.Reply, error) {
		return s.Credit(ctx, r, p.a, 30)
	}, 133, 100},
	"debit": {func(ctx context.Context, s *wallet.Service, p pair, r wallet.Request) (wallet.Reply, error) {
		return s.Debit(ctx, r, p.a, 30)
	}, 70, 100},
	"payment": {func(ctx context.Context, s *wallet.Service, p pair, r wallet.Request) (wallet.Reply, error) {
		return s.Pay(ctx, r, p.pay(30))
	}, 70, 130},
}

// atEveryStep tries each kind of operation with each strategy that has a
// transaction, once for each step.
func atEveryStep(t *testing.T, try func(c *fixture, kind string, step wallet.Step, p pair)) {
	for kind, k := range kinds {
		for _, strategy := range all() {
			if strategy == "naive" {
				continue
			}
			t.Run(kind+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				c := open(t, wallet.Config{Strategy: strategy})
				for _, step := range wallet.Steps() {
					p := c.pair(100, 100)
					try(c, kind, step, p)
					c.mustHave(p.a, k.a)
					c.mustHave(p.b, k.b)
					c.mustHold()
					if t.Failed() {
						t.Fatal("at ", step)
					}
				}
			})
		}
	}
}

func TestRequest_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(c *fixture, kind string, step wallet.Step, p pair) {
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(c.t.Context())
		defer cancel(nil)
		cfg := c.cfg
		cfg.Failpoint = locktest.OnceAt(step, func(context.Context) { cancel(gone) })
		left, _ := c.another(cfg)
		req := newRequest(p.alice)
		reply, err := kinds[kind].do(ctx, left, p, req)
		passed := kind == "credit" || step != wallet.AfterCall
		batch := c.cfg.Strategy == "combined" && kind != "payment" && step != wallet.BeforeAcquire
		switch {
		case step == wallet.AfterCommit, step == wallet.AfterRelease, !passed, batch:
			c.done(reply, err) // it was committed; a batch ignores that a client leaves
		case !errors.Is(err, gone):
			c.t.Errorf("%s, %v: want the cause", reply.Body, err)
		default:
			c.mustHave(p.a, 100)
			c.mustHave(p.b, 100)
		}
		c.done(kinds[kind].do(c.t.Context(), c.Service, p, req))
	})
}

// The server ends an open transaction, because its lifetime is over, or because an operator kills
// it. The next statement gets NoSuchTransaction.
func TestTransaction_EndedByTheServerIsRunAgain(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(c *fixture, kind string, step wallet.Step, p pair) {
		cfg := c.cfg
		ended := false
		cfg.Failpoint = locktest.OnceAt(step, func(ctx context.Context) {
			if session := mongo.SessionFromContext(ctx); session != nil {
				ended = true
				c.admin(bson.D{{Key: "killSessions", Value: bson.A{session.ID()}}})
			}
		})
		svc, events := c.another(cfg)
		c.done(kinds[kind].do(c.t.Context(), svc, p, newRequest(p.alice)))
		begun := step == wallet.AfterGuard || step == wallet.BeforeCommit
		if begun && (!ended || events.Of(wallet.Transient) == 0 || events.Of(wallet.Conflict) != 0) {
			c.t.Errorf("the fault did not land: %v", events)
		}
		if step == wallet.AfterGuard && events.Of(wallet.Expired) != events.Of(wallet.Transient) {
			c.t.Errorf("%v, want every transient error to be expired", events)
		}
		keeps := c.cfg.Strategy == "inc" || c.cfg.Strategy == "combined" // the bonus, from attempt to attempt
		if calls, operations := c.bonus.calls(); calls > 0 && step == wallet.BeforeCommit && keeps != (calls == operations) {
			c.t.Errorf("%d calls of the bonus service for %d operations in two attempts", calls, operations)
		}
	})
}

// The lock of a holder that is stopped or killed remains until the server ends its transaction.
// Until then no other request gets the wallet, and none waits for ever.
func TestWallet_HeldByAnotherProcessIsBusyUntilItEnds(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			reached, goOn := make(chan struct{}), make(chan struct{})
			cfg := c.cfg
			cfg.Failpoint = locktest.OnceAt(wallet.AfterGuard, func(context.Context) {
				close(reached)
				<-goOn // for longer than RequestTimeout
			})
			holder, _ := c.another(cfg)
			one := locktest.Beside(func() (wallet.Reply, error) { return holder.Credit(t.Context(), newRequest(p.alice), p.a, 10) })
			<-reached
			req := newRequest(p.alice)
			if _, err := c.Debit(t.Context(), req, p.a, 10); !errors.Is(err, locking.ErrBusy) {
				t.Errorf("%v, want ErrBusy", err)
			}
			close(goOn)
			if o := <-one; !errors.Is(o.Err, locking.ErrBusy) {
				t.Errorf("the holder: %s, %v, want ErrBusy", o.Reply.Body, o.Err)
			}
			c.done(c.Debit(t.Context(), req, p.a, 10))
			c.mustHave(p.a, 90)
			c.mustHold()
		})
	}
}

// A process that passes a wallet on from client to client takes it again sooner than another
// process retries. It leaves the wallet to the other one nevertheless.
func TestQueue_ABusyProcessLeavesTheWalletToAnother(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(0, 0)
	cfg := c.cfg
	cfg.Bonus = c.bonus.slow
	busy, _ := c.another(cfg)
	other, _ := c.another(cfg)
	const clients, credits, most = 8, 8, 200
	var (
		did   atomic.Int64 // credits of the busy process
		first = make(chan struct{})
		ended = make(chan struct{})
		wg    sync.WaitGroup
	)
	for range clients {
		wg.Go(func() {
			for {
				c.done(until(t.Context(), func() (wallet.Reply, error) { return busy.Credit(t.Context(), newRequest(p.alice), p.a, 10) }))
				if did.Add(1) == 1 {
					close(first)
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	defer func() {
		close(ended)
		wg.Wait()
		c.mustHold()
	}()
	<-first
	credited := func() bool {
		reply, err := other.Credit(t.Context(), newRequest(p.alice), p.a, 10)
		if errors.Is(err, locking.ErrBusy) {
			return false
		}
		c.done(reply, err)
		return true
	}
	locktest.Eventually(t, "the other process has its turn", credited)
	did.Store(1) // until then the busy process takes itself for alone: its runs are long
	for n := 1; n < credits; {
		if credited() {
			n++
		}
		if beside := did.Load(); beside > most {
			t.Errorf("%d credits of one process, while the busy one made %d", n, beside)
			break
		}
	}
}

func TestQueue_FullIsBusyAndARequestThatLeavesItDidNothing(t *testing.T) {
	t.Parallel()
	pause, reached, resume := locktest.PauseAt(wallet.AfterGuard)
	c := open(t, wallet.Config{QueueMax: 1, Failpoint: pause})
	p := c.pair(100, 0)
	one := locktest.Beside(func() (wallet.Reply, error) { return c.Credit(t.Context(), newRequest(p.alice), p.a, 10) })
	<-reached
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	two := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(ctx, newRequest(p.alice), p.a, 10) })
	three := locktest.Beside(func() (wallet.Reply, error) { return c.Pay(ctx, newRequest(p.alice), p.pay(10)) })
	var refused outcome // the queue has room for one of the two
	waits := two
	select {
	case refused = <-two:
		waits = three
	case refused = <-three:
	}
	if !errors.Is(refused.Err, locking.ErrBusy) || c.events.Of(wallet.QueueFull) != 1 {
		t.Errorf("%v, want ErrBusy; the queue was full %d times", refused.Err, c.events.Of(wallet.QueueFull))
	}
	if n := c.Queued(); n != 1 {
		t.Errorf("%d in the queue, want 1", n)
	}
	cancel(gone)
	if o := <-waits; !errors.Is(o.Err, gone) {
		t.Errorf("%v, want the cause", o.Err)
	}
	resume()
	c.done((<-one).Pair())
	if n := c.Queued(); n != 0 {
		t.Errorf("%d in the queue, want none", n)
	}
	c.mustHave(p.a, 111)
	c.mustHold()
}
