// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/locktest"
	"shop/transfer"
)

// expiredHolds makes n holds of 2 that have expired.
func (b *bank) expiredHolds(p pair, n int) {
	b.T.Helper()
	for range n {
		b.reserve(p, 2, time.Hour)
	}
	b.Exec(`UPDATE transfers SET expires_at = clock_timestamp() - interval '1 s'`)
}

// The money of expired holds is available, however many holds it takes. If even all of it is
// not enough, the refusal ends none of the holds.
func TestHold_ExpiredMoneyIsAvailableHoweverManyHoldsItTakes(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			b.expiredHolds(p, 49)
			if reply, err := b.Transfer(t.Context(), newRequest(p.alice), p.move(101)); err != nil || !isRefused(reply) {
				t.Errorf("%s, %v, want it refused", reply.Body, err)
			}
			b.mustHave(p.a, 100, 98)
			b.transferred(b.Transfer(t.Context(), newRequest(p.alice), p.move(90)))
			if balance, held := b.money(p.a); balance != 10 || held > 10 {
				t.Errorf("balance %d, held %d", balance, held)
			}
			b.mustHold()
		})
	}
}

// A hold begins when both rows are locked, not when the wait for them begins: otherwise it
// could expire before it begins.
func TestHold_BeginsAfterTheWaitForTheRows(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			for _, busy := range []uuid.UUID{p.a, p.b} { // one of them is locked first, the other last
				letGo := b.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, busy)
				done := locktest.Beside(func() (transfer.Reply, error) {
					return b.Reserve(t.Context(), newRequest(p.alice), p.move(30), time.Millisecond)
				})
				locktest.Eventually(t, "the reserve waits for the row", func() bool { return b.Waiting() > 0 })
				var had time.Time
				if err := b.Pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&had); err != nil {
					t.Fatal(err)
				}
				letGo()
				if hold := b.transferred((<-done).Pair()); hold.CreatedAt.Before(had) {
					t.Errorf("the hold began %v before the row was free, and ended %v before", had.Sub(hold.CreatedAt), had.Sub(*hold.ExpiresAt))
				}
			}
			b.mustHold()
		})
	}
}

// refuses is a lock store that answers with an error.
type refuses struct {
	locking.Store
	err error
}

func (s refuses) TryAcquire(context.Context, ...string) (locking.Lease, error) {
	return locking.Lease{}, s.err
}

// What prevents the end of one hold often prevents all: the error has the reason three times.
func TestSweep_ErrorIsShortHoweverManyHoldsAreLeft(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	b.expiredHolds(p, 40)
	for name, c := range map[string]struct {
		err        error
		begun      int32
		said, more string
	}{
		"all are busy":     {locking.ErrBusy, 40, "", "and 37 more holds"},
		"the lock is gone": {errors.New("cut off"), 1, "cut off", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var begun atomic.Int32
			cfg := b.cfg
			cfg.Strategy, cfg.Locks, cfg.Lock.MaxWait = "etcd-fenced", refuses{err: c.err}, time.Millisecond
			cfg.Failpoint = func(_ context.Context, step transfer.Step, _ string) {
				if step == transfer.BeforeAcquire {
					begun.Add(1)
				}
			}
			svc, _ := b.another(cfg)
			n, err := svc.Sweep(t.Context())
			if n != 0 || err == nil || strings.Count(err.Error(), "transfer: sweep ") != min(3, int(c.begun)) ||
				!strings.Contains(err.Error(), c.said) || !strings.HasSuffix(err.Error(), c.more) {
				t.Errorf("swept %d: %v", n, err)
			}
			if n := begun.Load(); n != c.begun {
				t.Errorf("%d holds were tried, want %d", n, c.begun)
			}
		})
	}
}
