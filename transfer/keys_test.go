package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/transfer"
)

func TestKey_SameAtTheSameMomentHasOneEffectAndOneBody(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			replica, _ := b.another(b.replica())
			req := ask(p.alice)
			const senders = 8
			var bodies [senders][]byte
			var wg sync.WaitGroup
			for n := range senders {
				svc := []*transfer.Service{b.Service, replica}[n%2]
				wg.Go(func() {
					reply, err := until(t.Context(), func(ctx context.Context) (transfer.Reply, error) { return svc.Transfer(ctx, req, p.move(30)) })
					if err != nil {
						t.Error(err)
					}
					bodies[n] = reply.Body
				})
			}
			wg.Wait()
			for _, body := range bodies {
				if !bytes.Equal(body, bodies[0]) {
					t.Errorf("bodies differ: %s and %s", body, bodies[0])
				}
			}
			b.mustHave(p.a, 70, 0)
			b.mustHold()
		})
	}
}

// Two requests with one key that lock different rows meet nowhere but at the
// key: only the order of locks and the wait of the INSERT keep them apart.
func TestKey_SameForDifferentRequestsLetsOneThrough(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy, Failpoint: meet(2)})
			p := b.pair(100, 0)
			c, d := b.account(p.alice, 100), b.account(uuid.New(), 0)
			first := ask(p.alice)
			second := first
			second.Fingerprint[0]++
			one := beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), first, p.move(30)) })
			two := beside(func() (transfer.Reply, error) { return b.Transfer(t.Context(), second, euros(c, d, 20)) })
			x, y := (<-one).err, (<-two).err
			if (x == nil) == (y == nil) || !errors.Is(errors.Join(x, y), transfer.ErrKeyReused) {
				t.Errorf("%v and %v, want one nil and one ErrKeyReused", x, y)
			}
			if n := b.posted(); n != 1 {
				t.Errorf("%d transfers, want 1", n)
			}
			b.mustHold()
		})
	}
}

func TestKey_OfAnotherRequestIsRefusedWithoutEffect(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	req := ask(p.alice)
	b.transferred(b.Transfer(t.Context(), req, p.move(30)))
	req.Fingerprint[0]++
	if _, err := b.Transfer(t.Context(), req, p.move(30)); !errors.Is(err, transfer.ErrKeyReused) {
		t.Errorf("%v, want ErrKeyReused", err)
	}
	b.mustHave(p.a, 70, 0)
}

func TestKey_BelongsToItsClient(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 100)
	b.transferred(b.Transfer(t.Context(), askBy(p.alice, "same"), p.move(30)))
	reply, err := b.Transfer(t.Context(), askBy(p.bob, "same"), p.back(10))
	if err != nil || reply.Replayed {
		t.Errorf("%+v, %v", reply, err)
	}
	b.mustHave(p.a, 80, 0)
}

func TestKey_InsufficientFundsIsStoredAndReplayedWhenThereIsMoney(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(10, 100)
			req := ask(p.alice)
			first, err := b.Transfer(t.Context(), req, p.move(11))
			if err != nil || !isRefused(first) {
				t.Fatalf("%s, %v", first.Body, err)
			}
			b.transferred(b.Transfer(t.Context(), ask(p.bob), p.back(50)))
			again, err := b.Transfer(t.Context(), req, p.move(11))
			if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
				t.Errorf("%+v, %v: want the first answer", again, err)
			}
			b.mustHave(p.a, 60, 0)
			b.mustHold()
		})
	}
}
