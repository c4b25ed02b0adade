// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

// While the synchronous standby is away, the primary commits transfers that a fail-over would lose. None is answered, nor is
// its repetition. When the standby is back, each repetition gets the transfer, and no money moved twice.
func TestTransfer_IsNotAnsweredBeforeTheStandbyHasIt(t *testing.T) {
	t.Parallel()
	locktest.Slow(t, "waits for the time limits of a request")
	_, d := pgtest.Own(t, nil, "transfer")
	sent := map[string]func(context.Context) (transfer.Reply, error){}
	var b *bank
	payers := map[string]pair{}
	for _, strategy := range []string{"row", "serializable", "etcd-fenced", "combined"} {
		b = openOn(d, transfer.Config{Strategy: strategy}, nil)
		svc, p := b.Service, b.pair(100, 0)
		req := newRequest(p.alice)
		payers[strategy] = p
		sent[strategy] = func(ctx context.Context) (transfer.Reply, error) { return svc.Transfer(ctx, req, p.move(30)) }
	}
	rows := openOn(d, transfer.Config{}, nil)
	for name, settle := range map[string]func(context.Context, transfer.Request, transfer.Transfer) (transfer.Reply, error){
		"post": func(ctx context.Context, req transfer.Request, tr transfer.Transfer) (transfer.Reply, error) {
			return rows.Post(ctx, req, tr.ID, 0)
		},
		"void": func(ctx context.Context, req transfer.Request, tr transfer.Transfer) (transfer.Reply, error) {
			return rows.Void(ctx, req, tr.ID)
		},
	} {
		p := rows.pair(100, 0)
		hold, req := rows.reserve(p, 30, time.Hour), newRequest(p.alice)
		payers[name] = p
		sent[name] = func(ctx context.Context) (transfer.Reply, error) { return settle(ctx, req, hold) }
	}
	p := rows.pair(100, 0)
	reserve := newRequest(p.alice)
	payers["reserve"] = p
	sent["reserve"] = func(ctx context.Context) (transfer.Reply, error) {
		return rows.Reserve(ctx, reserve, p.move(30), time.Hour)
	}

	d.StandbyAway()
	var all sync.WaitGroup
	for name, send := range sent {
		all.Go(func() {
			for _, what := range []string{"first", "again"} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // as a server bounds a request
				defer cancel()
				if reply, err := send(ctx); !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
					t.Errorf("%s, %s, without the standby: status %d, replayed %t, %v, want ErrOutcomeUnknown", name, what, reply.Status, reply.Replayed, err)
				}
			}
		})
	}
	all.Wait()
	d.StandbyBack()
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		reply, err := sent[name](t.Context())
		if err != nil || !reply.Replayed || isRefused(reply) {
			t.Errorf("%s, with the standby: %s, replayed %t, %v", name, reply.Body, reply.Replayed, err)
		}
		balance, held := int64(70), int64(0)
		switch name {
		case "void":
			balance = 100
		case "reserve":
			balance, held = 100, 30
		}
		rows.mustHave(payers[name].a, balance, held)
	}
	rows.total = 7 * 100
	rows.mustHold()
}
