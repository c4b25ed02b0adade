// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

// impatient opens a Service that waits only 100 ms for locks in PostgreSQL.
func (s *shop) impatient(strategy string) *inventory.Service {
	cfg := s.cfg
	cfg.Strategy, cfg.Pool = strategy, pgtest.Pool(s.T, s.URL, "lock_timeout=100")
	svc, _ := s.another(cfg)
	return svc
}

// A refusal writes only its key. While the key is committed, the rows are unlocked.
func TestWait_NoPurchaseQueuesForTheFsyncOfARefusal(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "cancel") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: "row"})
			s.stock("A", 1)
			s.stock("B", 1)
			buyer := newRequest()
			lines := []inventory.Line{{SKU: "A", Quantity: 1}, {SKU: "B", Quantity: 1}}
			id := s.ordered(buyer, lines...)
			if strategy == "cancel" {
				if _, err := s.Cancel(t.Context(), requestBy(buyer.Client, "1"), id); err != nil {
					t.Fatal(err)
				}
			}
			free := int64(-1)
			cfg := s.cfg
			cfg.Failpoint = locktest.OnceAt(inventory.BeforeCommit, func(context.Context) {
				free = s.Number(`SELECT count(*) FROM (SELECT FROM products FOR UPDATE SKIP LOCKED) p`)
			})
			refused, _ := s.another(cfg)
			var reply inventory.Reply
			var err error
			if strategy == "cancel" {
				reply, err = refused.Cancel(t.Context(), requestBy(buyer.Client, "2"), id)
			} else {
				reply, err = refused.BuyWith(t.Context(), strategy, newRequest(), lines)
			}
			if err != nil || !isRefused(reply) || free != 2 {
				t.Errorf("%s, %v: %d of 2 rows are free, want both", reply.Body, err, free)
			}
			s.mustHold()
		})
	}
}

// deadlines records the statements that are sent without a deadline.
type deadlines struct {
	mu      sync.Mutex
	all     int
	endless []string
}

func (d *deadlines) note(ctx context.Context, sql string) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all++
	if _, bounded := ctx.Deadline(); !bounded {
		d.endless = append(d.endless, sql)
	}
	return ctx
}

func (d *deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return d.note(ctx, q.SQL)
}

func (d *deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	return d.note(ctx, b.Batch.QueuedQueries[0].SQL)
}

func (d *deadlines) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (d *deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
}
func (d *deadlines) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A server that stops answering does not enforce its own timeouts, and a caller may
// have no deadline.
func TestWait_OnASilentServerIsBounded(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{})
	s.stock("A", 100)
	d := &deadlines{}
	cfg := s.cfg
	config := s.Pool.Config()
	config.ConnConfig.Tracer = d
	var err error
	if cfg.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cfg.Pool.Close)
	s.Service, _ = s.another(cfg)
	buyer := newRequest()
	id := s.ordered(buyer, one("A")...)
	for _, strategy := range append(safe(), "naive", "redis-only") {
		_, err := s.BuyWith(t.Context(), strategy, newRequest(), one("A"))
		report(t, err)
	}
	_, err = s.Cancel(t.Context(), requestBy(buyer.Client, "c"), id)
	report(t, err)
	_, err = s.Order(t.Context(), buyer.Client, id)
	report(t, err)
	_, err = s.Products(t.Context())
	report(t, err)
	_, err = s.Product(t.Context(), "A")
	report(t, err)
	s.stock("B", 1)
	if d.all < 30 || len(d.endless) > 0 {
		t.Errorf("%d of %d messages have no deadline:\n%s", len(d.endless), d.all, strings.Join(d.endless, "\n"))
	}
}

func TestWait_EndsWithTheCallersDeadline(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"advisory-try", "redis+row"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			sku := "waited for by " + strategy // unique among tests: all schemas share advisory locks
			s.stock(sku, 5)
			release := s.Hold(`SELECT sku FROM products WHERE sku = $1 FOR UPDATE`, sku)
			if strategy == "advisory-try" {
				release()
				release = s.Hold(`SELECT pg_advisory_xact_lock($1)`, inventory.LockKey("inventory/product/"+sku))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			if _, err := s.Buy(ctx, newRequest(), one(sku)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want the deadline", err)
			}
			if waited := time.Since(start); waited > pgtx.LockTimeout {
				t.Errorf("took %v for a deadline of 200 ms", waited)
			}
			release()
			s.mustHold()
		})
	}
}
