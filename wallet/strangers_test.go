// SPDX-License-Identifier: MIT

package wallet_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/locking"
	"shop/locking/locktest"
	"shop/wallet"
)

// The owner's request holds the wallet. Requests of another client are refused meanwhile, and
// lock nothing.
func TestCredit_StrangerWaitsInNoQueueAndLocksNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{})
			p := c.pair(100, 100)
			pause, reached, resume := locktest.PauseAt(wallet.AfterGuard)
			svc, w := c.watched(wallet.Config{Strategy: strategy, Failpoint: pause})
			owner := locktest.Beside(func() (wallet.Reply, error) { return svc.Debit(t.Context(), newRequest(p.alice), p.a, 10) })
			<-reached
			sent := len(w.names(t))
			if _, err := svc.Credit(t.Context(), newRequest(p.bob), p.a, 10); !errors.Is(err, wallet.ErrForbidden) {
				t.Errorf("credit: %v, want ErrForbidden", err)
			}
			if _, err := svc.Pay(t.Context(), newRequest(p.bob), p.pay(10)); !errors.Is(err, wallet.ErrForbidden) {
				t.Errorf("payment: %v, want ErrForbidden", err)
			}
			if more := w.names(t)[sent:]; len(more) > 0 {
				t.Errorf("the stranger's requests sent %q", more)
			}
			resume()
			c.done((<-owner).Pair())
			c.mustHave(p.a, 90)
			c.mustHold()
		})
	}
}

// The owner is checked before the queue, and again among the data that the operation decides on.
func TestDebit_OwnerIsCheckedInTheTransactionToo(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{})
			p := c.pair(100, 0)
			cfg := c.cfg
			cfg.Strategy = strategy
			cfg.Failpoint = locktest.OnceAt(wallet.AfterBegin, func(context.Context) {
				if _, err := c.db.Collection("wallets").UpdateByID(t.Context(), p.a, bson.D{{Key: "$set", Value: bson.D{{Key: "owner", Value: p.bob}}}}); err != nil {
					t.Error(err)
				}
			})
			svc, _ := c.another(cfg)
			if reply, err := svc.Debit(t.Context(), newRequest(p.alice), p.a, 1); !errors.Is(err, wallet.ErrForbidden) {
				t.Errorf("%s, %v, want ErrForbidden", reply.Body, err)
			}
			c.mustHave(p.a, 100)
			c.mustHold()
		})
	}
}

// Any client may pay to a wallet, and its payments wait in the wallet's queue. They get only a
// share of the places, so that the owner has room.
func TestQueue_OneClientCannotFillTheQueueOfItsPayee(t *testing.T) {
	t.Parallel()
	pause, reached, resume := locktest.PauseAt(wallet.AfterGuard)
	c := open(t, wallet.Config{QueueMax: 4, Failpoint: pause})
	p := c.pair(100, 100)
	for bytes.Compare(p.b[:], p.a[:]) > 0 { // the payee's wallet is the first that a payment locks
		p = c.pair(100, 100)
	}
	first := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(t.Context(), newRequest(p.bob), p.b, 10) })
	<-reached
	const payments = 6
	paid := make(chan outcome, payments)
	for range payments {
		go func() {
			reply, err := c.Pay(t.Context(), newRequest(p.alice), p.pay(1))
			paid <- outcome{Reply: reply, Err: err}
		}()
	}
	if o := <-paid; !errors.Is(o.Err, locking.ErrBusy) { // alice has her whole share
		t.Errorf("%s, %v, want ErrBusy", o.Reply.Body, o.Err)
	}
	second := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(t.Context(), newRequest(p.bob), p.b, 10) })
	for n := 1; n < payments-1; n++ {
		<-paid
	}
	resume()
	for _, o := range []outcome{<-first, <-second, <-paid} {
		c.done(o.Pair())
	}
	c.mustHave(p.b, 81)
	c.mustHold()
}

// What only the primary has can be rolled back, and with it the reason of a refusal.
func TestRefusal_IsSentOnlyAfterAMajorityHasItsReason(t *testing.T) {
	locktest.Slow(t, "it stops two members of a replica set")
	s := newSet(t)
	c := openAt(t, s.url, wallet.Config{})
	p := c.pair(100, 0)
	full := c.wallet(p.alice, 100)
	inc, _ := c.another(wallet.Config{Database: c.db, Strategy: "inc", Bonus: c.bonus.call})
	primary, others := s.roles()
	s.replicate(others, "off")
	wallets := s.direct[primary].Database(c.db.Name()).Collection("wallets")
	binary := func(id uuid.UUID) bson.Binary { return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]} }

	var unseen bson.M // a wallet of bob that only the primary has
	s.must(wallets.FindOne(t.Context(), bson.D{{Key: "_id", Value: binary(p.b)}}).Decode(&unseen))
	id := uuid.New()
	unseen["_id"] = binary(id)
	s.atPrimary(primary, c.db.Name(), bson.D{{Key: "insert", Value: "wallets"}, {Key: "documents", Value: bson.A{unseen}}})
	stranger := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(t.Context(), newRequest(p.alice), id, 1) })
	s.atPrimary(primary, c.db.Name(), bson.D{{Key: "update", Value: "wallets"}, {Key: "updates", Value: bson.A{bson.D{
		{Key: "q", Value: bson.D{{Key: "_id", Value: binary(full)}}},
		{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: int64(1<<63 - 1)}}}}},
	}}}})
	var owners []<-chan outcome
	for _, svc := range []*wallet.Service{c.Service, inc} {
		owners = append(owners, locktest.Beside(func() (wallet.Reply, error) { return svc.Credit(t.Context(), newRequest(p.alice), full, 1) }))
	}
	if o := <-stranger; !errors.Is(o.Err, locking.ErrBusy) {
		t.Errorf("%v: an answer about a wallet that one of three members has, want ErrBusy", o.Err)
	}
	for _, owner := range owners {
		if o := <-owner; !errors.Is(o.Err, locking.ErrOutcomeUnknown) {
			t.Errorf("%s, %v: an answer about a balance that one of three members has, want ErrOutcomeUnknown", o.Reply.Body, o.Err)
		}
	}
	s.replicate(others, "on")
	for _, svc := range []*wallet.Service{c.Service, inc} {
		req := newRequest(p.alice)
		o := <-locktest.Beside(func() (wallet.Reply, error) {
			return until(t.Context(), func() (wallet.Reply, error) { return svc.Credit(t.Context(), req, full, 1) })
		})
		if !errors.Is(o.Err, wallet.ErrInvalid) {
			t.Errorf("%s, %v, want ErrInvalid", o.Reply.Body, o.Err)
		}
	}
	if _, err := c.Debit(t.Context(), newRequest(p.alice), id, 1); !errors.Is(err, wallet.ErrForbidden) {
		t.Errorf("%v, want ErrForbidden", err)
	}
	c.mustHave(full, 1<<63-1)
}

// If the schema refuses a valid write, the schema is wrong, and a retry does not help.
func TestSchema_RefusalIsAnErrorWithoutARetry(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			must(t, c.db.RunCommand(t.Context(), bson.D{
				{Key: "collMod", Value: "wallets"},
				{Key: "validator", Value: bson.D{{Key: "balance", Value: bson.D{{Key: "$lt", Value: 1000}}}}},
			}).Err())
			_, err := c.Credit(t.Context(), newRequest(p.alice), p.a, 2000)
			if err == nil || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
				t.Errorf("%v, want an error that calls for no retry", err)
			}
			if tripped, retried := c.events.Of(wallet.GuardTripped), c.events.Of(wallet.Retried); tripped != 1 || retried != 0 {
				t.Errorf("tripped %d times, %d retries, want 1 and 0", tripped, retried)
			}
			c.mustHave(p.a, 100)
			c.mustHold()
		})
	}
}
