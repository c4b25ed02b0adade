// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/transfer"
)

// reserve holds amount of the first account's money.
func (b *bank) reserve(p pair, amount int64, expiresIn time.Duration) transfer.Transfer {
	b.T.Helper()
	return b.transferred(b.Reserve(b.T.Context(), newRequest(p.alice), p.move(amount), expiresIn))
}

// lapse makes a hold expire a second ago.
func (b *bank) lapse(id uuid.UUID) { b.expire(id, time.Second) }

// expire sets the expiry of a hold to so long ago, by the database's clock.
func (b *bank) expire(id uuid.UUID, ago time.Duration) {
	b.T.Helper()
	b.Exec(`UPDATE transfers SET expires_at = clock_timestamp() - $2::interval WHERE id = $1`, id, ago)
}

// state returns the state of a transfer in the database.
func (b *bank) state(id uuid.UUID) (s transfer.State) {
	b.T.Helper()
	if err := b.Pool.QueryRow(context.Background(), `SELECT state FROM transfers WHERE id = $1`, id).Scan(&s); err != nil {
		b.T.Fatal(err)
	}
	return s
}

func TestHold_IsReservedThenSettledOnceInPartOrInFull(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			full, part, void := b.reserve(p, 20, time.Hour), b.reserve(p, 30, time.Hour), b.reserve(p, 40, time.Hour)
			b.mustHave(p.a, 100, 90)
			if full.State != transfer.Reserved || full.Settled != 0 || full.ExpiresAt == nil || full.EndedAt != nil ||
				full.ExpiresAt.Sub(full.CreatedAt) != time.Hour {
				t.Errorf("reserved: %+v", full)
			}
			if reply, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(11)); err != nil || !isRefused(reply) {
				t.Errorf("a transfer of held money: %s, %v, want it refused", reply.Body, err)
			}
			if tr := b.transferred(b.Post(t.Context(), newRequest(p.alice), full.ID, 0)); tr.State != transfer.Posted || tr.Settled != 20 || tr.EndedAt == nil {
				t.Errorf("posted: %+v", tr)
			}
			if tr := b.transferred(b.Post(t.Context(), newRequest(p.alice), part.ID, 7)); tr.State != transfer.Posted || tr.Settled != 7 || tr.Amount != 30 {
				t.Errorf("posted in part: %+v", tr)
			}
			if tr := b.transferred(b.Void(t.Context(), newRequest(p.alice), void.ID)); tr.State != transfer.Voided || tr.Settled != 0 {
				t.Errorf("voided: %+v", tr)
			}
			b.mustHave(p.a, 73, 0)
			b.mustHave(p.b, 27, 0)
			for _, id := range []uuid.UUID{full.ID, part.ID, void.ID} {
				for name, again := range b.settlers(t, p, id) {
					if reply, err := again(); err != nil || !isRefused(reply) || !strings.Contains(string(reply.Body), "settled") {
						t.Errorf("%s again: %s, %v, want ErrSettled stored", name, reply.Body, err)
					}
				}
			}
			b.mustHave(p.a, 73, 0)
			b.mustHold()
		})
	}
}

// settlers are the ways in which a client ends a hold.
func (b *bank) settlers(t *testing.T, p pair, id uuid.UUID) map[string]func() (transfer.Reply, error) {
	return map[string]func() (transfer.Reply, error){
		"post": func() (transfer.Reply, error) { return b.Post(t.Context(), newRequest(p.alice), id, 0) },
		"void": func() (transfer.Reply, error) { return b.Void(t.Context(), newRequest(p.alice), id) },
	}
}

func TestHold_RefusalsAreStoredAndReplayed(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	hold := b.reserve(p, 30, time.Hour)
	b.lapse(hold.ID)
	late, after := newRequest(p.alice), newRequest(p.alice)
	for _, req := range []transfer.Request{late, after} { // the first ends the hold, the second finds it ended
		first, err := b.Post(t.Context(), req, hold.ID, 0)
		if err != nil || !isRefused(first) || !strings.Contains(string(first.Body), "expired") {
			t.Fatalf("%s, %v, want ErrExpired stored", first.Body, err)
		}
		if got := b.state(hold.ID); got != transfer.Expired {
			t.Errorf("the reply is ErrExpired, but the state is %s", got)
		}
		again, err := b.Post(t.Context(), req, hold.ID, 0)
		if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
			t.Errorf("%+v, %v", again, err)
		}
	}
	b.mustHave(p.a, 100, 0)
	if n := b.events.Of(transfer.Swept); n != 1 {
		t.Errorf("%d swept, want 1", n)
	}
	b.mustHold()
}

func TestHold_OfAnotherClientOrTooMuchIsNotSettled(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	hold := b.reserve(p, 30, time.Hour)
	for name, c := range map[string]struct {
		client uuid.UUID
		id     uuid.UUID
		amount int64
		want   error
	}{
		"the payee":         {p.bob, hold.ID, 0, transfer.ErrNotFound},
		"a stranger":        {uuid.New(), hold.ID, 0, transfer.ErrNotFound},
		"no such hold":      {p.alice, uuid.New(), 0, transfer.ErrNotFound},
		"more than is held": {p.alice, hold.ID, 31, transfer.ErrInvalid},
		"less than nothing": {p.alice, hold.ID, -1, transfer.ErrInvalid},
	} {
		if _, err := b.Post(t.Context(), newRequest(c.client), c.id, c.amount); !errors.Is(err, c.want) {
			t.Errorf("post by %s: %v, want %v", name, err, c.want)
		}
		if c.want != transfer.ErrNotFound {
			continue
		}
		if _, err := b.Void(t.Context(), newRequest(c.client), c.id); !errors.Is(err, c.want) {
			t.Errorf("void by %s: %v, want %v", name, err, c.want)
		}
	}
	for _, d := range []time.Duration{0, -time.Second, time.Microsecond, transfer.HoldMax + 1} {
		if _, err := b.Reserve(t.Context(), newRequest(p.alice), p.move(1), d); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("for %v: %v, want ErrInvalid", d, err)
		}
	}
	b.mustHave(p.a, 100, 30)
	b.mustHold()
}

// A hold names its client and the payer's account. If the client is not the owner of the
// account, which should not happen, the client may not move the money.
func TestHold_IsSettledByTheOwnerOfTheMoneyAlone(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			hold := b.reserve(p, 30, time.Hour)
			b.Exec(`UPDATE transfers SET client_id = $2 WHERE id = $1`, hold.ID, p.bob)
			if reply, err := b.Post(t.Context(), newRequest(p.bob), hold.ID, 0); !errors.Is(err, transfer.ErrForbidden) {
				t.Errorf("post: %s, %v, want ErrForbidden", reply.Body, err)
			}
			if reply, err := b.Void(t.Context(), newRequest(p.bob), hold.ID); !errors.Is(err, transfer.ErrForbidden) {
				t.Errorf("void: %s, %v, want ErrForbidden", reply.Body, err)
			}
			b.mustHave(p.a, 100, 30)
		})
	}
}

// The payee's balance may have grown since the money was held.
func TestHold_ThatThePayeeCannotTakeIsRefusedAndStaysReserved(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			hold := b.reserve(p, 30, time.Hour)
			b.Exec(`UPDATE accounts SET balance = $2 WHERE id = $1`, p.b, int64(math.MaxInt64-29))
			if reply, err := b.Post(t.Context(), newRequest(p.alice), hold.ID, 0); !errors.Is(err, transfer.ErrInvalid) {
				t.Errorf("%s, %v, want ErrInvalid", reply.Body, err)
			}
			b.mustHave(p.a, 100, 30)
			if got := b.state(hold.ID); got != transfer.Reserved {
				t.Errorf("the hold is %s, want it reserved", got)
			}
			b.transferred(b.Post(t.Context(), newRequest(p.alice), hold.ID, 29))
			b.mustHave(p.b, math.MaxInt64, 0)
		})
	}
}

// If a payer is short of funds, its expired holds are ended first. The transfer is refused only
// if that is not enough.
func TestHold_ExpiredMoneyIsAvailableToTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			carol := b.account(uuid.New(), 0)
			b.lapse(b.reserve(p, 40, time.Hour).ID)
			b.lapse(b.reserve(p, 50, time.Hour).ID)
			b.transferred(b.Transfer(t.Context(), newRequest(p.alice), euros(p.a, carol, 10))) // needs no expired hold
			b.mustHave(p.a, 90, 90)
			b.transferred(b.Transfer(t.Context(), newRequest(p.alice), euros(p.a, carol, 60)))
			b.mustHave(p.a, 30, 0)
			if reply, err := b.Transfer(t.Context(), newRequest(p.alice), euros(p.a, carol, 31)); err != nil || !isRefused(reply) {
				t.Errorf("%s, %v", reply.Body, err)
			}
			b.mustHold()
		})
	}
}

func TestSweep_ExpiresTheHoldsThatAreDueAndNoOthers(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(1000, 0)
			for range 5 {
				b.lapse(b.reserve(p, 10, time.Hour).ID)
			}
			live := b.reserve(p, 7, time.Hour)
			if n, err := b.Sweep(t.Context()); n != 5 || err != nil {
				t.Errorf("swept %d, %v, want 5", n, err)
			}
			b.mustHave(p.a, 1000, 7)
			if n, err := b.Sweep(t.Context()); n != 0 || err != nil {
				t.Errorf("swept %d again, %v", n, err)
			}
			if got := b.state(live.ID); got != transfer.Reserved {
				t.Errorf("the live one is %s", got)
			}
			b.mustHold()
		})
	}
}
