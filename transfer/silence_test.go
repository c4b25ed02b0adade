// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
)

// PostgreSQL accepts connections and answers nothing. Then its own time limits have no effect,
// and the caller has none: the package itself bounds every wait.
func TestPostgreSQL_SilenceEndsEveryCallWithoutADeadline(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	from, atRows, atHold, atCommit := newQuietBank(t, ""), newQuietBank(t, transfer.AfterAcquire), newQuietBank(t, transfer.AfterAcquire), newQuietBank(t, transfer.BeforeCommit)
	for _, q := range []quietBank{from, atRows, atHold, atCommit} {
		defer q.px.Down()
	}
	type call struct {
		name string
		on   quietBank
		do   func(quietBank, context.Context) error
		want error // nil: any
	}
	ended := make(chan string, 16)
	calls := []call{ // all at once, since each waits until its time limit
		{"transfer, at its key", from, quietBank.transfer, locking.ErrBusy},
		{"transfer, at the rows", atRows, quietBank.transfer, locking.ErrBusy},
		{"transfer, at COMMIT", atCommit, quietBank.transfer, locking.ErrOutcomeUnknown},
		{"post", from, quietBank.post, locking.ErrBusy},
		{"sweep, at its list", from, quietBank.sweep, locking.ErrBusy},
		{"sweep, at a hold", atHold, quietBank.sweep, locking.ErrBusy},
		{"purge", from, quietBank.purge, nil},
		{"account", from, quietBank.account, locking.ErrBusy},
		{"find", from, quietBank.find, locking.ErrBusy},
		{"open an account", from, quietBank.open, nil},
		{"list accounts", from, quietBank.list, nil},
		{"epochs", from, quietBank.epochs, nil},
		{"new epoch", from, quietBank.epoch, nil},
	}
	waiting := map[string]bool{}
	for _, c := range calls {
		waiting[c.name] = true
		go func() {
			if err := c.do(c.on, context.Background()); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
			ended <- c.name
		}()
	}
	for limit := time.After(10 * pgtx.Limit); len(waiting) > 0; {
		select {
		case name := <-ended:
			delete(waiting, name)
		case <-limit:
			t.Fatalf("still waiting after %v: %q", 10*pgtx.Limit, slices.Sorted(maps.Keys(waiting)))
		}
	}
	if n := atHold.begun.Load(); n != 1 {
		t.Errorf("sweep began %d holds, want 1: PostgreSQL was silent from the first on", n)
	}
}

// quietBank is a Service whose PostgreSQL falls silent.
type quietBank struct {
	*transfer.Service
	pair
	px    *servertest.Proxy
	cfg   transfer.Config
	hold  uuid.UUID
	begun *atomic.Int32 // how often a request reached BeforeAcquire
}

func newQuietBank(t *testing.T, at transfer.Step) quietBank {
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	q := quietBank{pair: b.pair(100, 0), cfg: b.cfg, begun: &atomic.Int32{}}
	var through string
	q.px, through = servertest.ProxyURL(t, b.URL)
	for range 3 {
		q.hold = b.reserve(q.pair, 1, time.Hour).ID
		b.lapse(q.hold)
	}
	q.cfg.Pool = pgtest.Pool(t, through)
	warm, _ := b.another(q.cfg)
	b.transferred(warm.Transfer(t.Context(), newRequest(q.alice), q.move(1)))
	q.cfg.Failpoint = func(_ context.Context, step transfer.Step, _ string) {
		if step == transfer.BeforeAcquire {
			q.begun.Add(1)
		}
		if step == at {
			q.hush()
		}
	}
	q.Service, _ = b.another(q.cfg)
	if at == "" {
		q.hush()
	}
	return q
}

// hush makes the server look stopped: it accepts connections, and answers nothing.
func (q quietBank) hush() {
	nothing := func([]byte, net.Conn, net.Conn) bool { return false }
	q.px.OnRequest(nothing)
	q.px.OnReply(nothing)
}

func (q quietBank) transfer(ctx context.Context) error {
	_, err := q.Transfer(ctx, newRequest(q.alice), q.move(1))
	return err
}

func (q quietBank) post(ctx context.Context) error {
	_, err := q.Post(ctx, newRequest(q.alice), q.hold, 0)
	return err
}

func (q quietBank) sweep(ctx context.Context) error {
	_, err := q.Sweep(ctx)
	return err
}

func (q quietBank) purge(ctx context.Context) error {
	_, err := pgtx.Purge(ctx, q.cfg.Pool, pgtx.KeysKept)
	return err
}

func (q quietBank) account(ctx context.Context) error {
	_, err := q.Account(ctx, q.alice, q.a)
	return err
}

func (q quietBank) find(ctx context.Context) error {
	_, err := q.Find(ctx, q.alice, q.hold)
	return err
}

func (q quietBank) open(ctx context.Context) error {
	_, err := q.OpenAccount(ctx, transfer.Account{ID: uuid.New(), Owner: q.alice, Currency: "EUR"})
	return err
}

func (q quietBank) list(ctx context.Context) error {
	_, err := q.Accounts(ctx, q.alice)
	return err
}

func (q quietBank) epochs(ctx context.Context) error {
	_, err := transfer.Epochs(ctx, q.cfg.Pool)
	return err
}

func (q quietBank) epoch(ctx context.Context) error {
	_, err := transfer.NewEpoch(ctx, q.cfg.Pool, epoch, "another")
	return err
}
