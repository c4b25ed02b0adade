// SPDX-License-Identifier: MIT

package wallet_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"shop/locking/idempotency"
	"shop/wallet"
)

func TestRequest_ThatIsNotAllowedIsRefusedAndNotStored(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p, absent, ctx := c.pair(100, 100), uuid.New(), t.Context()
			dollars := uuid.New()
			if _, err := c.OpenWallet(ctx, wallet.Wallet{ID: dollars, Owner: p.bob, Currency: "USD"}); err != nil {
				t.Fatal(err)
			}
			for name, try := range map[string]struct {
				do   func(wallet.Request) (wallet.Reply, error)
				want error
			}{
				"nothing":  {func(r wallet.Request) (wallet.Reply, error) { return c.Credit(ctx, r, p.a, 0) }, wallet.ErrInvalid},
				"less":     {func(r wallet.Request) (wallet.Reply, error) { return c.Debit(ctx, r, p.a, -1) }, wallet.ErrInvalid},
				"too much": {func(r wallet.Request) (wallet.Reply, error) { return c.Credit(ctx, r, p.a, wallet.AmountMax+1) }, wallet.ErrInvalid},
				"to itself": {func(r wallet.Request) (wallet.Reply, error) {
					return c.Pay(ctx, r, wallet.Payment{From: p.a, To: p.a, Amount: 1})
				}, wallet.ErrInvalid},
				"no key":    {func(r wallet.Request) (wallet.Reply, error) { r.Key = ""; return c.Debit(ctx, r, p.a, 1) }, idempotency.ErrKey},
				"no wallet": {func(r wallet.Request) (wallet.Reply, error) { return c.Debit(ctx, r, absent, 1) }, wallet.ErrNotFound},
				"no payee": {func(r wallet.Request) (wallet.Reply, error) {
					return c.Pay(ctx, r, wallet.Payment{From: p.a, To: absent, Amount: 1})
				}, wallet.ErrNotFound},
				"credits another": {func(r wallet.Request) (wallet.Reply, error) { return c.Credit(ctx, r, p.b, 1) }, wallet.ErrForbidden},
				"debits another":  {func(r wallet.Request) (wallet.Reply, error) { return c.Debit(ctx, r, p.b, 1000) }, wallet.ErrForbidden},
				"pays by another": {func(r wallet.Request) (wallet.Reply, error) { return c.Pay(ctx, r, p.payBack(1)) }, wallet.ErrForbidden},
				"other currency": {func(r wallet.Request) (wallet.Reply, error) {
					return c.Pay(ctx, r, wallet.Payment{From: p.a, To: dollars, Amount: 1})
				}, wallet.ErrInvalid},
			} {
				if reply, err := try.do(newRequest(p.alice)); !errors.Is(err, try.want) {
					t.Errorf("%s: %s, %v, want %v", name, reply.Body, err, try.want)
				}
			}
			if n := c.operations(); n != 0 {
				t.Errorf("%d operations are stored", n)
			}
			if calls, _ := c.bonus.calls(); calls != 0 && strategy != "inc" && strategy != "lock-late" {
				t.Errorf("the bonus service was called %d times", calls)
			}
			c.mustHave(p.a, 100)
			c.mustHave(p.b, 100)
			c.mustHold()
		})
	}
}
