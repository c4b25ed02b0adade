// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"shop/locking/locktest"
	"shop/wallet"
)

// twoCredits makes two credits of one wallet, which meet at a step.
func twoCredits(t *testing.T, strategy string, at wallet.Step) (c *fixture, id uuid.UUID) {
	t.Helper()
	c = open(t, wallet.Config{Strategy: strategy, QueueMax: -1, Failpoint: locktest.MeetAt(2, at)})
	alice := uuid.New()
	id = c.wallet(alice, 100)
	one := locktest.Beside(func() (wallet.Reply, error) { return c.Credit(t.Context(), newRequest(alice), id, 30) })
	two := locktest.Beside(func() (wallet.Reply, error) { return c.Credit(t.Context(), newRequest(alice), id, 20) })
	for _, o := range []outcome{<-one, <-two} {
		c.done(o.Pair())
	}
	return c, id
}

func TestNaive_LosesOneOfTwoCreditsAtOnce(t *testing.T) {
	t.Parallel()
	c, _ := twoCredits(t, "naive", wallet.AfterGuard)
	c.mustBreak()
}

func TestNaive_SpendsTheSameMoneyTwice(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{Strategy: "naive", Failpoint: locktest.MeetAt(2, wallet.AfterGuard)})
	p := c.pair(100, 0)
	one := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(t.Context(), newRequest(p.alice), p.a, 100) })
	two := locktest.Beside(func() (wallet.Reply, error) { return c.Pay(t.Context(), newRequest(p.alice), p.pay(100)) })
	for _, o := range []outcome{<-one, <-two} {
		c.done(o.Pair())
	}
	c.mustHave(p.b, 100)
	c.mustBreak()
}

// The balances of these controls are right. Two requests read, or pass the lock that locks
// nothing. Both call the bonus service. One is refused at its write, and calls again. lock-late
// is refused at its lock instead: there the first request stops after its lock until the second
// has begun again.
func TestControls_KeepTheBalanceAndCallTheBonusServiceAgain(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"txn", "constant-lock", "lock-late"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			alice := uuid.New()
			id := c.wallet(alice, 100)
			c.done(c.Credit(t.Context(), newRequest(alice), id, 10)) // this writes the constant lockId
			failpoint := locktest.MeetAt(2, wallet.AfterGuard)
			if strategy == "lock-late" {
				failpoint = secondBeginsTwice()
			}
			svc, _ := c.another(wallet.Config{Database: c.db, Strategy: strategy, Bonus: c.bonus.call, Failpoint: failpoint})
			credit := func(amount int64) <-chan outcome {
				req := newRequest(alice)
				return locktest.Beside(func() (wallet.Reply, error) {
					return until(t.Context(), func() (wallet.Reply, error) { return svc.Credit(t.Context(), req, id, amount) })
				})
			}
			one, two := credit(30), credit(20)
			for _, o := range []outcome{<-one, <-two} {
				c.done(o.Pair())
			}
			c.mustHave(id, 100+11+33+22)
			c.mustHold()
			if c.bonus.twice() == 0 {
				t.Error("no request called the bonus service twice: the control did not fail, or the check is blind")
			}
		})
	}
}

// secondBeginsTwice stops the first request that has its lock until three callbacks have begun:
// one of the first request, and two of the second.
func secondBeginsTwice() func(context.Context, wallet.Step, string) {
	var begun atomic.Int32
	pause, _, resume := locktest.PauseAt(wallet.AfterGuard)
	return func(ctx context.Context, step wallet.Step, name string) {
		if step == wallet.AfterBegin && begun.Add(1) == 3 {
			resume()
		}
		pause(ctx, step, name)
	}
}

// Two requests begin at the same moment, without a queue: this is the purpose of lockid.
func TestLockID_CallsTheBonusServiceOnceThoughWritersCollide(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{QueueMax: -1})
	alice := uuid.New()
	id := c.wallet(alice, 100)
	c.done(c.Credit(t.Context(), newRequest(alice), id, 10)) // if the lockId were constant, the wallet would have it now
	pause, reached, resume := locktest.PauseAt(wallet.AfterGuard)
	holder, _ := c.another(wallet.Config{Database: c.db, QueueMax: -1, Bonus: c.bonus.call, Failpoint: pause})
	one := locktest.Beside(func() (wallet.Reply, error) { return holder.Credit(t.Context(), newRequest(alice), id, 30) })
	<-reached
	var tries atomic.Int32
	refused, events := c.another(wallet.Config{Database: c.db, QueueMax: -1, Bonus: c.bonus.call, Failpoint: func(_ context.Context, step wallet.Step, _ string) {
		if step == wallet.AfterBegin && tries.Add(1) == 3 {
			resume()
		}
	}})
	two := locktest.Beside(func() (wallet.Reply, error) { return refused.Credit(t.Context(), newRequest(alice), id, 20) })
	for _, o := range []outcome{<-one, <-two} {
		c.done(o.Pair())
	}
	c.mustHave(id, 166)
	c.mustHold()
	if calls, operations := c.bonus.calls(); calls != 3 || operations != 3 || tries.Load() < 3 {
		t.Errorf("%d calls for %d operations in %d tries", calls, operations, tries.Load())
	}
	if n, other := events.Of(wallet.Conflict), events.Of(wallet.Transient); n != int(tries.Load())-1 || other != 0 {
		t.Errorf("%d conflicts and %d other transient errors in %d tries", n, other, tries.Load())
	}
}

// churn runs operations of all kinds between eight wallets, half of which have
// next to nothing, on two replicas. Every tenth request is sent twice.
func (c *fixture) churn(operations int, seed uint64) {
	c.t.Helper()
	replica, _ := c.another(c.cfg)
	random := rand.New(rand.NewPCG(seed, seed))
	owner := uuid.New()
	ids := make([]uuid.UUID, 8)
	for i := range ids {
		ids[i] = c.wallet(owner, int64(5+95*(i%2)))
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for n := range operations {
		from, to, amount, kind := random.IntN(8), random.IntN(7), 1+random.Int64N(30), random.IntN(4)
		if to >= from {
			to++
		}
		req := newRequest(owner)
		for copies := 0; copies == 0 || copies == 1 && n%10 == 0; copies++ {
			svc := []*wallet.Service{c.Service, replica}[(n+copies)%2]
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				_, err := until(c.t.Context(), func() (wallet.Reply, error) {
					switch kind {
					case 0:
						return svc.Credit(c.t.Context(), req, ids[from], amount)
					case 1:
						return svc.Debit(c.t.Context(), req, ids[from], amount)
					default:
						return svc.Pay(c.t.Context(), req, wallet.Payment{From: ids[from], To: ids[to], Amount: amount})
					}
				})
				if err != nil {
					c.t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

func TestStrategies_WithATransactionKeepTheInvariants(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		if strategy == "naive" {
			continue
		}
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			const operations = 120
			c.churn(operations, 1)
			if n := c.operations(); n != operations {
				t.Errorf("%d answers, want %d", n, operations)
			}
			if n := c.events.Of(wallet.GuardTripped); n > 0 {
				t.Errorf("the last guard tripped %d times", n)
			}
			c.mustHold()
			if twice := c.bonus.twice(); slices.Contains(safe(), strategy) && twice > 0 {
				t.Errorf("%d requests called the bonus service twice", twice)
			}
		})
	}
}
