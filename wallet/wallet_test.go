// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/locking"
	"shop/wallet"
)

// safe are the names of the strategies that promise the invariants.
func safe() (names []string) {
	for _, s := range wallet.Strategies() {
		if s.Safe {
			names = append(names, s.Name)
		}
	}
	return names
}

func all() (names []string) {
	for _, s := range wallet.Strategies() {
		names = append(names, s.Name)
	}
	return names
}

func TestCredit_AddsTheAmountAndTheBonus(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			c.done(c.Credit(t.Context(), newRequest(p.alice), p.a, 30))
			c.mustHave(p.a, 133)
			c.mustHold()
			if calls, _ := c.bonus.calls(); calls != 1 {
				t.Errorf("%d calls of the bonus service, want 1", calls)
			}
		})
	}
}

func TestDebitAndPay_MoveWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			c.done(c.Debit(t.Context(), newRequest(p.alice), p.a, 30))
			c.done(c.Pay(t.Context(), newRequest(p.alice), p.pay(50)))
			c.done(c.Pay(t.Context(), newRequest(p.bob), p.payBack(5)))
			c.mustHave(p.a, 25)
			c.mustHave(p.b, 45)
			c.mustHold()
			if calls, _ := c.bonus.calls(); calls != 0 {
				t.Errorf("%d calls of the bonus service, want none", calls)
			}
		})
	}
}

func TestInsufficientFunds_AreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			if reply, err := c.Debit(t.Context(), newRequest(p.alice), p.a, 101); err != nil || !isRefused(reply) {
				t.Errorf("%s, %v", reply.Body, err)
			}
			if reply, err := c.Pay(t.Context(), newRequest(p.alice), p.pay(101)); err != nil || !isRefused(reply) {
				t.Errorf("%s, %v", reply.Body, err)
			}
			c.mustHave(p.a, 100)
			c.mustHave(p.b, 0)
			c.mustHold()
		})
	}
}

func TestBonusService_ThatFailsCreditsNothingAndTheKeyIsOpen(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			c.bonus.fails = 1
			req := newRequest(p.alice)
			unavailable := new(wallet.UnavailableError)
			if _, err := c.Credit(t.Context(), req, p.a, 30); !errors.Is(err, locking.ErrBusy) || !errors.As(err, &unavailable) {
				t.Errorf("%v, want an UnavailableError", err)
			}
			c.mustHave(p.a, 100)
			c.done(c.Credit(t.Context(), req, p.a, 30))
			c.mustHave(p.a, 133)
			if calls, operations := c.bonus.calls(); calls != 2 || operations != 1 {
				t.Errorf("%d calls for %d operations", calls, operations)
			}
			c.mustHold()
		})
	}
}

// A bonus is at most AmountMax. The wallet must have room for that before the call: once the
// service has booked the bonus, it is too late to refuse.
func TestCredit_ThatTheLargestBonusWouldOverflowMakesNoCall(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		if strategy == "inc" { // it calls before it knows the balance
			continue
		}
		for _, room := range []int64{-1, 0} {
			t.Run(fmt.Sprintf("%s/%d", strategy, room), func(t *testing.T) {
				t.Parallel()
				calls := 0
				c := open(t, wallet.Config{Strategy: strategy, Bonus: func(context.Context, wallet.BonusRequest) (int64, error) {
					calls++
					return wallet.AmountMax, nil
				}})
				p := c.pair(0, 0)
				full := bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: int64(math.MaxInt64 - wallet.AmountMax - 20 - room)}}}}
				if _, err := c.db.Collection("wallets").UpdateByID(t.Context(), p.a, full); err != nil {
					t.Fatal(err)
				}
				switch _, err := c.Credit(t.Context(), newRequest(p.alice), p.a, 20); {
				case room < 0 && (!errors.Is(err, wallet.ErrInvalid) || calls != 0):
					t.Errorf("%v, want ErrInvalid; %d calls, want none", err, calls)
				case room == 0 && (err != nil || calls != 1):
					t.Errorf("%v; %d calls, want 1", err, calls)
				case room == 0:
					c.mustHave(p.a, math.MaxInt64)
				}
			})
		}
	}
}

// All safe strategies refuse what a wallet cannot hold, also inc, where MongoDB adds.
func TestCredit_ThatAWalletCannotHoldIsInvalid(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			most := func(context.Context, wallet.BonusRequest) (int64, error) { return wallet.AmountMax, nil }
			c := open(t, wallet.Config{Strategy: strategy, Bonus: most})
			p := c.pair(0, 0)
			full := bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: int64(math.MaxInt64 - 10)}}}}
			if _, err := c.db.Collection("wallets").UpdateByID(t.Context(), p.a, full); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Credit(t.Context(), newRequest(p.alice), p.a, 20); !errors.Is(err, wallet.ErrInvalid) {
				t.Errorf("%v, want ErrInvalid", err)
			}
			c.mustHave(p.a, math.MaxInt64-10)
			c.done(c.Debit(t.Context(), newRequest(p.alice), p.a, 20))
			c.mustHave(p.a, math.MaxInt64-30)
		})
	}
}
