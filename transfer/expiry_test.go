// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/transfer"
)

// A post, a void and two sweepers meet at the moment at which the hold ends: exactly one ends
// it. Meanwhile transfers use the same accounts.
func TestHold_OfPostVoidAndSweepExactlyOneWins(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(1000, 1000)
			replica, _ := b.another(b.replica())
			ended := map[transfer.State]int{}
			for range 12 {
				hold := b.reserve(p, 10, 30*time.Millisecond)
				var (
					wg   sync.WaitGroup
					mu   sync.Mutex
					wins int
				)
				won := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					wins += n
				}
				atItsEnd := func(do func(context.Context) (transfer.Reply, error)) {
					wg.Go(func() {
						b.awaitClock(*hold.ExpiresAt, -3*time.Millisecond)
						reply, err := until(t.Context(), do)
						if err != nil {
							t.Error(err)
						} else if !isRefused(reply) {
							won(1)
						}
					})
				}
				post, void := newRequest(p.alice), newRequest(p.alice)
				atItsEnd(func(ctx context.Context) (transfer.Reply, error) { return b.Post(ctx, post, hold.ID, 0) })
				atItsEnd(func(ctx context.Context) (transfer.Reply, error) { return replica.Void(ctx, void, hold.ID) })
				for _, svc := range []*transfer.Service{b.Service, replica} {
					wg.Go(func() {
						b.awaitClock(*hold.ExpiresAt, 0)
						_, err := svc.Sweep(t.Context())
						for errors.Is(err, locking.ErrBusy) { // a busy hold is left for the next Sweep
							_, err = svc.Sweep(t.Context())
						}
						if err != nil {
							t.Error(err)
						}
					})
					wg.Go(func() {
						req := newRequest(p.bob)
						if _, err := until(t.Context(), func(ctx context.Context) (transfer.Reply, error) {
							return svc.Transfer(ctx, req, p.back(1))
						}); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				state := b.state(hold.ID)
				ended[state]++
				if want := map[transfer.State]int{transfer.Posted: 1, transfer.Voided: 1}[state]; wins != want || state == transfer.Reserved {
					t.Errorf("%d of post and void won, and it is %s", wins, state)
				}
			}
			t.Log(ended)
			b.mustHold()
		})
	}
}

// awaitClock waits until the database's clock has reached at plus and.
func (b *bank) awaitClock(at time.Time, and time.Duration) {
	locktest.Eventually(b.T, "the clock reaches the time", func() bool {
		var reached bool
		err := b.Pool.QueryRow(context.Background(), `SELECT clock_timestamp() >= $1`, at.Add(and)).Scan(&reached)
		return err == nil && reached
	})
}

// The post begins in time, waits for the row, and gets it after the hold has expired. now()
// is the beginning of its transaction: with it the post would be in time.
func TestHold_ExpiryIsCheckedAfterTheWaitForTheRow(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fenced", "etcd-fence-only"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			hold := b.reserve(p, 30, time.Hour)
			letGo := b.Hold(`SELECT FROM accounts WHERE id = $1 FOR UPDATE`, p.a)
			post := locktest.Beside(func() (transfer.Reply, error) { return b.Post(t.Context(), newRequest(p.alice), hold.ID, 0) })
			locktest.Eventually(t, "the post waits for the row", func() bool { return b.Waiting() > 0 })
			b.expire(hold.ID, 0) // while the post waits
			letGo()
			reply, err := (<-post).Pair()
			if err != nil || !isRefused(reply) || b.state(hold.ID) != transfer.Expired {
				t.Errorf("%s, %v, it is %s: want it expired", reply.Body, err, b.state(hold.ID))
			}
			b.mustHave(p.a, 100, 0)
			b.mustHold()
		})
	}
}

// The sweeper locks the rows: it must not write between a transfer's read and its write, nor
// the transfer between the sweeper's.
func TestSweep_WaitsForTheTransferAtTheAccount(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			hold := b.reserve(p, 30, time.Hour)
			s := b.stopAt(transfer.AfterGuard)
			first := locktest.Beside(func() (transfer.Reply, error) { return s.Transfer(t.Context(), newRequest(p.alice), p.move(10)) })
			s.await()
			b.lapse(hold.ID)
			if strategy != "row" {
				b.steal(t) // so that only the row keeps them apart
			}
			swept := make(chan int, 1)
			go func() {
				n, err := b.Sweep(t.Context())
				if err != nil {
					t.Error(err)
				}
				swept <- n
			}()
			locktest.Eventually(t, "the sweeper waits for the row", func() bool { return b.Waiting() > 0 })
			s.goOn()
			b.transferred((<-first).Pair())
			if n := <-swept; n != 1 {
				t.Errorf("swept %d, want 1", n)
			}
			b.mustHave(p.a, 90, 0)
			b.mustHold()
		})
	}
}

// To the microsecond, which is the database's precision.
func TestHold_LastsAsLongAsRequested(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			for _, wanted := range []time.Duration{time.Millisecond, 1234567 * time.Nanosecond, 90 * time.Minute, transfer.HoldMax} {
				hold, want := b.reserve(p, 1, wanted), wanted.Truncate(time.Microsecond)
				if hold.ExpiresAt == nil || hold.ExpiresAt.Sub(hold.CreatedAt) != want {
					t.Errorf("requested %v, the reply has %v to %v", wanted, hold.CreatedAt, hold.ExpiresAt)
				}
				us := b.Number(`SELECT (extract(epoch FROM expires_at - created_at) * 1000000)::bigint FROM transfers WHERE id = $1`, hold.ID)
				if stored := time.Duration(us) * time.Microsecond; stored != want {
					t.Errorf("requested %v, stored %v", wanted, stored)
				}
			}
		})
	}
}
