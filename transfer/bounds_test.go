// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

// impatient opens a Service that waits for a lock in PostgreSQL for at most 100 ms.
func (b *bank) impatient() *transfer.Service {
	cfg := b.cfg
	cfg.Pool = pgtest.Pool(b.T, b.URL, "lock_timeout=100")
	svc, _ := b.another(cfg)
	return svc
}

func TestWait_ForTheSameKeyIsBoundedAndInProgress(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			req := newRequest(p.alice)
			letGo := b.Hold(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, req.Client, req.Key, req.Fingerprint[:])
			_, err := b.impatient().Transfer(t.Context(), req, p.move(30))
			if !errors.Is(err, idempotency.ErrInProgress) || errors.Is(err, locking.ErrBusy) {
				t.Errorf("%v, want ErrInProgress: whether the first succeeds is not known", err)
			}
			letGo()
			if reply, err := b.Transfer(t.Context(), req, p.move(30)); err != nil || reply.Replayed {
				t.Errorf("after the first request was rolled back: %+v, %v", reply, err)
			}
			b.mustHave(p.a, 70, 0)
			b.mustHold()
		})
	}
}

func TestWait_ForTheLockIsBounded(t *testing.T) {
	t.Parallel()
	const maxWait = 3 * time.Second // above the default of 2 s, and enough for etcd to answer
	b := open(t, transfer.Config{Strategy: "etcd-fenced", Lock: locking.Options{MaxWait: maxWait}})
	p := b.pair(100, 0)
	s := b.stopAt(transfer.AfterAcquire)
	first := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(30)) })
	s.await()
	start := time.Now()
	_, err := b.Transfer(t.Context(), newRequest(p.bob), p.back(1))
	var down *transfer.UnavailableError
	if waited := time.Since(start); !errors.Is(err, locking.ErrBusy) || errors.As(err, &down) || waited < maxWait {
		t.Errorf("%v after %v, want ErrBusy after %v", err, waited, maxWait)
	}
	s.goOn()
	b.transferred((<-first).Pair())
	b.mustHold()
}

// X→Y and Y→X run at the same moment, again and again.
func TestTransfer_OppositeDirectionsNeverDeadlock(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fence-only", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(1000, 1000)
			if strategy != "row" { // so that the transfers meet at the rows
				b.cfg.Locks = locksForAll{b.cfg.Locks}
			}
			var rounds []<-chan outcome
			svc, events := b.another(b.cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for n := range 40 {
				client, m := p.alice, p.move(1)
				if n%2 == 1 {
					client, m = p.bob, p.back(1)
				}
				rounds = append(rounds, locktest.Beside(func() (transfer.Reply, error) {
					req := newRequest(client)
					return until(ctx, func(ctx context.Context) (transfer.Reply, error) { return svc.Transfer(ctx, req, m) })
				}))
			}
			for _, done := range rounds {
				b.transferred((<-done).Pair())
			}
			if n := events.Of(transfer.Retried); n != 0 {
				t.Errorf("%d retries: there was a deadlock", n)
			}
			b.mustHave(p.a, 1000, 0)
			b.mustHold()
		})
	}
}

// locksForAll is a lock service that grants every key to every request, with increasing fences.
type locksForAll struct{ locking.Store }

func (s locksForAll) TryAcquire(ctx context.Context, _ ...string) (locking.Lease, error) {
	return s.Store.TryAcquire(ctx, uuid.NewString())
}

// With a lock service that grants to all, the guard alone protects the money.
func TestTransfer_ALyingLockServiceCostsNoMoney(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-fence-only", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy, Locks: locksForAll{sharedLocks(t).store(t)}})
			b.churn(8, 100, 3)
			if b.posted() == 0 {
				t.Error("no money moved")
			}
			b.mustHold()
		})
	}
}
