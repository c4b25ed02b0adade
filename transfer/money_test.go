// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/transfer"
)

// safe are the names of the strategies that promise the invariants.
func safe() (names []string) {
	for _, s := range transfer.Strategies() {
		if s.Safe {
			names = append(names, s.Name)
		}
	}
	return names
}

// all are the names of the strategies that keep keys, unsafe ones included.
func all() (names []string) {
	for _, s := range transfer.Strategies() {
		if s.Name != "token-per-transfer" {
			names = append(names, s.Name)
		}
	}
	return names
}

// until repeats a request with the same key until it has a final answer, as a client
// does after an error that allows a retry.
func until(ctx context.Context, do func(context.Context) (transfer.Reply, error)) (transfer.Reply, error) {
	for {
		reply, err := do(ctx)
		for _, again := range []error{locking.ErrBusy, locking.ErrLost, locking.ErrStale, idempotency.ErrInProgress} {
			if errors.Is(err, again) && ctx.Err() == nil {
				err = nil
				reply.Status = -1
			}
		}
		if err != nil || reply.Status != -1 {
			return reply, err
		}
	}
}

// churn moves money between accounts, half of which have next to nothing, in all directions
// at once, on two replicas. Every tenth request is sent twice.
func (b *bank) churn(accounts, transfers int, seed uint64) {
	b.T.Helper()
	replica, _ := b.another(b.replica())
	random := rand.New(rand.NewPCG(seed, seed))
	owner := uuid.New()
	ids := make([]uuid.UUID, accounts)
	for i := range ids {
		ids[i] = b.account(owner, int64(5+95*(i%2)))
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for n := range transfers {
		from, to := random.IntN(accounts), random.IntN(accounts-1)
		if to >= from {
			to++
		}
		m, req := euros(ids[from], ids[to], 1+random.Int64N(20)), newRequest(owner)
		for copies := 0; copies == 0 || copies == 1 && n%10 == 0; copies++ {
			svc := []*transfer.Service{b.Service, replica}[(n+copies)%2]
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				_, err := until(b.T.Context(), func(ctx context.Context) (transfer.Reply, error) { return svc.Transfer(ctx, req, m) })
				if err != nil {
					b.T.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

func TestTransfer_SafeStrategiesConserveMoneyAndDoubleEntry(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			const transfers = 120
			b.churn(8, transfers, 1)
			answers, posted := b.Number(`SELECT count(*) FROM idempotency_keys`), b.posted()
			if answers != transfers {
				t.Errorf("%d answers, want %d", answers, transfers)
			}
			if posted == 0 || posted == answers {
				t.Errorf("%d of %d posted: want some, but not all", posted, answers)
			}
			if n := b.events.Of(transfer.GuardTripped); n > 0 {
				t.Errorf("the last guard tripped %d times", n)
			}
			b.mustHold()
		})
	}
}

// Config.Count and Config.Failpoint get the name of the strategy that runs.
func TestWith_ReportsTheOtherStrategyToCountAndFailpoint(t *testing.T) {
	t.Parallel()
	var names []string
	b := open(t, transfer.Config{Strategy: "row", Failpoint: func(_ context.Context, _ transfer.Step, strategy string) {
		names = append(names, strategy)
	}})
	other, err := b.With("serializable")
	if err != nil {
		t.Fatal(err)
	}
	p := b.pair(100, 0)
	b.transferred(other.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	if names = slices.Compact(names); len(names) != 1 || names[0] != "serializable" {
		t.Errorf("steps of %q, want serializable alone", names)
	}
}
