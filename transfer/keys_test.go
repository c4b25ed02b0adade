// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking/idempotency"
	"shop/transfer"
)

func TestKey_StaysOpenAfterAnErrorThatIsNotStored(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	carol := b.account(uuid.New(), transfer.AmountMax)
	b.Exec(`UPDATE accounts SET opening = $2, balance = $2 WHERE id = $1`, carol, int64(math.MaxInt64))
	yen := transfer.Account{ID: uuid.New(), Owner: p.alice, Currency: "JPY", Opening: 0}
	if _, err := b.OpenAccount(t.Context(), yen); err != nil {
		t.Fatal(err)
	}
	req := newRequest(p.alice)
	for name, c := range map[string]struct {
		m    transfer.Move
		want error
	}{
		"nothing":               {p.move(0), transfer.ErrInvalid},
		"less than nothing":     {p.move(-1), transfer.ErrInvalid},
		"too much":              {p.move(transfer.AmountMax + 1), transfer.ErrInvalid},
		"to oneself":            {euros(p.a, p.a, 1), transfer.ErrInvalid},
		"no currency":           {transfer.Move{From: p.a, To: p.b, Amount: 1}, transfer.ErrInvalid},
		"lower case":            {transfer.Move{From: p.a, To: p.b, Amount: 1, Currency: "eur"}, transfer.ErrInvalid},
		"another currency":      {transfer.Move{From: p.a, To: p.b, Amount: 1, Currency: "USD"}, transfer.ErrInvalid},
		"payee's currency":      {euros(p.a, yen.ID, 1), transfer.ErrInvalid},
		"more than payee holds": {euros(p.a, carol, 1), transfer.ErrInvalid},
		"from nowhere":          {euros(uuid.New(), p.b, 1), transfer.ErrNotFound},
		"to nowhere":            {euros(p.a, uuid.New(), 1), transfer.ErrNotFound},
		"another client's":      {p.back(1), transfer.ErrForbidden},
		"… to nowhere":          {euros(p.b, uuid.New(), 1), transfer.ErrForbidden},
	} {
		for _, strategy := range all() {
			if strategy == "lease-id-fence" {
				continue
			}
			svc := b.with(strategy)
			if _, err := svc.Transfer(t.Context(), req, c.m); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, want %v", name, strategy, err, c.want)
			}
			if _, err := svc.Reserve(t.Context(), req, c.m, time.Minute); !errors.Is(err, c.want) {
				t.Errorf("reserve %s, %s: %v, want %v", name, strategy, err, c.want)
			}
		}
	}
	if reply, err := b.Transfer(t.Context(), req, p.move(30)); err != nil || isRefused(reply) || reply.Replayed {
		t.Errorf("%+v, %v: want the key open", reply, err)
	}
	if n := b.Number(`SELECT count(*) FROM idempotency_keys`); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
}

// with returns a Service on the bank with another strategy and the stores that it needs.
func (b *bank) with(strategy string) *transfer.Service {
	b.T.Helper()
	cfg := b.cfg
	cfg.Strategy = strategy
	b.cfg.Locks = b.withStores(cfg).Locks
	cfg.Locks = b.cfg.Locks
	svc, _ := b.another(cfg)
	return svc
}

// An invalid request is refused before any lock: the lock store here panics.
func TestTransfer_IsCheckedBeforeAnyLock(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Locks: unasked{}, Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	for _, m := range []transfer.Move{p.move(0), euros(p.a, p.a, 1), {From: p.a, To: p.b, Amount: 1}} {
		if _, err := b.Transfer(t.Context(), newRequest(p.alice), m); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", m, err)
		}
	}
	if _, err := b.Post(t.Context(), newRequest(p.alice), uuid.New(), 0); !errors.Is(err, transfer.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestKey_MustBePrintable(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	for _, key := range []string{"", "a\x00", "ä", "a\n", string(make([]byte, 256))} {
		req := requestBy(p.alice, key)
		_, transferErr := b.Transfer(t.Context(), req, p.move(1))
		_, postErr := b.Post(t.Context(), req, uuid.New(), 0)
		for _, err := range []error{transferErr, postErr} {
			if !errors.Is(err, idempotency.ErrKey) {
				t.Errorf("key %q: %v, want ErrKey", key, err)
			}
		}
	}
}

func TestKey_InsufficientFundsIsStoredAndReplayedWhenThereIsMoney(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(10, 100)
			req := newRequest(p.alice)
			first, err := b.Transfer(t.Context(), req, p.move(11))
			if err != nil || !isRefused(first) {
				t.Fatalf("%s, %v", first.Body, err)
			}
			b.transferred(b.Transfer(t.Context(), newRequest(p.bob), p.back(50)))
			again, err := b.Transfer(t.Context(), req, p.move(11))
			if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
				t.Errorf("%+v, %v: want the first answer", again, err)
			}
			b.mustHave(p.a, 60, 0)
			b.mustHold()
		})
	}
}
