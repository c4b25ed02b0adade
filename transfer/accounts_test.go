// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/transfer"
)

func TestOpenAccount_OnceAndWithinBounds(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	a := transfer.Account{ID: uuid.New(), Owner: uuid.New(), Currency: "EUR", Opening: 5}
	for n, want := range []bool{true, false} {
		again := a
		again.Opening += int64(n)
		if opened, err := b.OpenAccount(t.Context(), again); opened != want || err != nil {
			t.Errorf("opened %v, %v, want %v", opened, err, want)
		}
	}
	b.mustHave(a.ID, 5, 0)
	for name, bad := range map[string]transfer.Account{
		"debt":        {ID: uuid.New(), Currency: "EUR", Opening: -1},
		"too much":    {ID: uuid.New(), Currency: "EUR", Opening: transfer.AmountMax + 1},
		"no currency": {ID: uuid.New()},
		"lower case":  {ID: uuid.New(), Currency: "eur"},
	} {
		if _, err := b.OpenAccount(t.Context(), bad); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestAccount_ShowsItsOwnerBalanceHeldAndEntries(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	first := b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
	b.reserve(p, 20, time.Hour)
	second := b.transferred(b.Transfer(t.Context(), newRequest(p.bob), p.back(5)))
	a, err := b.Account(t.Context(), p.alice, p.a)
	if err != nil || a.Balance != 75 || a.Held != 20 || a.Available() != 55 || a.Opening != 100 || a.Currency != "EUR" || a.Owner != p.alice {
		t.Errorf("%+v, %v", a, err)
	}
	if len(a.Entries) != 2 || a.Entries[0].Transfer != second.ID || a.Entries[0].Delta != 5 || a.Entries[1].Transfer != first.ID || a.Entries[1].Delta != -30 {
		t.Errorf("entries: %+v, want the latest first", a.Entries)
	}
	for range 25 {
		b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	}
	if a, err = b.Account(t.Context(), p.alice, p.a); err != nil || len(a.Entries) != 20 || a.Entries[0].Version <= a.Entries[19].Version {
		t.Errorf("%d entries, %v", len(a.Entries), err)
	}
	fresh := b.account(p.alice, 0)
	if a, err := b.Account(t.Context(), p.alice, fresh); err != nil || len(a.Entries) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if list, err := b.Accounts(t.Context(), p.alice); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v: want both accounts", list, err)
	}
}

func TestReads_AreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	tr := b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
	if got, err := b.Find(t.Context(), p.alice, tr.ID); err != nil || got.ID != tr.ID || got.State != transfer.Posted || !got.CreatedAt.Equal(tr.CreatedAt) || got.CreatedAt.Location() != time.UTC {
		t.Errorf("%+v, %v, want %+v", got, err, tr)
	}
	for name, err := range map[string]error{
		"transfer": second(b.Find(t.Context(), p.bob, tr.ID)),
		"none":     second(b.Find(t.Context(), p.alice, uuid.New())),
		"account":  second(b.Account(t.Context(), p.bob, p.a)),
		"nowhere":  second(b.Account(t.Context(), p.alice, uuid.New())),
	} {
		if !errors.Is(err, transfer.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"transfer": second(b.Find(ended, p.alice, tr.ID)),
		"account":  second(b.Account(ended, p.alice, p.a)),
		"accounts": second(b.Accounts(ended, p.alice)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", name, err)
		}
	}
}

// The money of a hold can be spent as soon as the hold is over, although its end is not recorded yet.
func TestAccount_TheMoneyOfAHoldThatIsOverIsAvailable(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	over, running := b.reserve(p, 60, time.Hour), b.reserve(p, 30, time.Hour)
	want := func(held, available int64) {
		t.Helper()
		one, err := b.Account(t.Context(), p.alice, p.a)
		all, errs := b.Accounts(t.Context(), p.alice)
		if err != nil || errs != nil || len(all) != 1 {
			t.Fatal(all, err, errs)
		}
		for _, a := range []transfer.Account{one, all[0]} {
			if a.Held != held || a.Available() != available {
				t.Errorf("%d held, %d available, want %d and %d", a.Held, a.Available(), held, available)
			}
		}
	}
	want(90, 10)
	b.lapse(over.ID)
	want(90, 70)
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(70)))
	want(30, 0)
	if tr, err := b.Find(t.Context(), p.alice, running.ID); err != nil || tr.State != transfer.Reserved {
		t.Errorf("%+v, %v", tr, err)
	}
	b.mustHold()
}

func second[T any](_ T, err error) error { return err }

func TestLedger_IsAppendOnly(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(30)))
	for _, sql := range []string{`UPDATE ledger_entries SET delta = 1`, `DELETE FROM ledger_entries`, `TRUNCATE ledger_entries`} {
		if _, err := b.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: no error", sql)
		}
	}
	b.mustHold()
}
