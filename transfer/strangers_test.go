// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/locktest"
	"shop/transfer"
)

// crowded is a lock store that is always busy, and counts the requests.
type crowded struct {
	locking.Store
	requests *atomic.Int32
}

func (s crowded) TryAcquire(context.Context, ...string) (locking.Lease, error) {
	s.requests.Add(1)
	return locking.Lease{}, locking.ErrBusy
}

// A request for another client's account is refused at once, although the lock store is busy
// and the row is locked.
func TestTransfer_StrangerWaitsInNoQueue(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{})
			p := b.pair(100, 0)
			hold, mallory := b.reserve(p, 20, transfer.HoldMax).ID, uuid.New()
			locks := crowded{requests: &atomic.Int32{}}
			cfg := b.cfg
			cfg.Locks, cfg.LeaseIDs, cfg.Strategy = locks, locks, strategy
			svc, _ := b.another(cfg)
			defer b.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, p.a)()
			for name, c := range map[string]struct {
				do   func() (transfer.Reply, error)
				want error
			}{
				"transfer": {func() (transfer.Reply, error) { return svc.Transfer(t.Context(), newRequest(mallory), p.move(1)) }, transfer.ErrForbidden},
				"reserve": {func() (transfer.Reply, error) {
					return svc.Reserve(t.Context(), newRequest(mallory), p.move(1), transfer.HoldMax)
				}, transfer.ErrForbidden},
				"post": {func() (transfer.Reply, error) { return svc.Post(t.Context(), newRequest(mallory), hold, 0) }, transfer.ErrNotFound},
				"void": {func() (transfer.Reply, error) { return svc.Void(t.Context(), newRequest(mallory), hold) }, transfer.ErrNotFound},
				"no account": {func() (transfer.Reply, error) {
					return svc.Transfer(t.Context(), newRequest(mallory), euros(mallory, p.a, 1))
				}, transfer.ErrNotFound},
			} {
				if reply, err := c.do(); !errors.Is(err, c.want) {
					t.Errorf("%s: %s, %v, want %v", name, reply.Body, err, c.want)
				}
			}
			if n := locks.requests.Load(); n != 0 {
				t.Errorf("%d requests to the lock store", n)
			}
		})
	}
}

// The check before the queue saves a wait. The check in the transaction, under the lock, decides.
func TestTransfer_OwnerIsCheckedInTheTransactionToo(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			cfg := b.cfg
			cfg.Failpoint = locktest.OnceAt(transfer.BeforeAcquire, func(ctx context.Context) {
				if _, err := b.Pool.Exec(ctx, `UPDATE accounts SET owner_id = $2 WHERE id = $1`, p.a, p.bob); err != nil {
					t.Error(err)
				}
			})
			svc, _ := b.another(cfg)
			if reply, err := svc.Transfer(t.Context(), newRequest(p.alice), p.move(1)); !errors.Is(err, transfer.ErrForbidden) {
				t.Errorf("%s, %v, want ErrForbidden", reply.Body, err)
			}
			b.mustHave(p.a, 100, 0)
			b.mustHold()
		})
	}
}

// unfenced is a lock store without fences.
type unfenced struct{ locking.Store }

func (s unfenced) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	l, err := s.Store.TryAcquire(ctx, keys...)
	l.Fence = 0
	return l, err
}

// If all leases had fence 0, every holder would pass the guard.
func TestFence_ZeroIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only", "combined"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy, Locks: unfenced{sharedLocks(t).store(t)}})
			p := b.pair(100, 0)
			reply, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(30))
			if down := new(transfer.UnavailableError); !errors.As(err, &down) {
				t.Errorf("%s, %v, want UnavailableError", reply.Body, err)
			}
			if n := b.Number(`SELECT (SELECT count(*) FROM transfers) + (SELECT count(*) FROM idempotency_keys) + sum(version) FROM accounts`); n != 0 {
				t.Errorf("%d rows or versions were written", n)
			}
			b.mustHold()
		})
	}
}
