// SPDX-License-Identifier: MIT

package rollup_test

import (
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"shop/inventory/rollup"
	"shop/locking"
	"shop/locking/held"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/servertest"
)

// redisRoller is a server whose lock is in Redis, with a TTL that is shorter than the work.
func redisRoller(t *testing.T, r rollup.Roller, prefix string) rollup.Roller {
	t.Helper()
	const ttl = 300 * time.Millisecond
	client, err := redislock.Connect(servertest.Env(t, "SHOP_REDIS_URL"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	locks, err := redislock.New(client, ttl, redislock.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	r.Locks = locks
	return r
}

// The batch as it is published: one of several servers runs it, the others skip it at once, and a watchdog renews the lock
// while the work takes longer than the TTL. Do renews it.
func TestRun_UnderALockInRedisThatIsRenewedWhileItWorks(t *testing.T) {
	t.Parallel()
	d, prefix := open(t), "rollup-"+rand.Text()
	var renewed atomic.Int64
	one, other := redisRoller(t, roller(t, d), prefix), redisRoller(t, roller(t, d), prefix)
	one.Observer = func(e locking.Event) {
		if e.Kind == locking.Renewed {
			renewed.Add(1)
		}
	}
	release := d.Hold(`LOCK TABLE daily_sales`)
	type run struct{ days []time.Time }
	done := locktest.Beside(func() (r run, err error) { r.days, err = one.Run(t.Context()); return r, err })
	locktest.Eventually(t, "the lock is older than three TTLs", func() bool { return renewed.Load() >= 9 })
	if days, err := other.Run(t.Context()); !errors.Is(err, locking.ErrBusy) || days != nil {
		t.Errorf("the other server: %v, %v, want ErrBusy", days, err)
	}
	release()
	if r, err := (<-done).Pair(); err != nil || len(r.days) != due(d) {
		t.Errorf("%v, %v", r.days, err)
	}
	wantSums(t, d)
}

// addUpAgain is the batch with the lock alone: it does not record what it has added.
const addUpAgain = `
	INSERT INTO daily_sales AS sums (day, sku, units, revenue, currency)
	SELECT (m.created_at AT TIME ZONE 'UTC')::date, m.sku, -sum(m.quantity), -sum(m.quantity * l.unit_price), max(p.currency)
	FROM stock_movements m
	JOIN order_lines l USING (order_id, sku)
	JOIN products p USING (sku)
	GROUP BY 1, 2
	ON CONFLICT (day, sku) DO UPDATE
	SET units = sums.units + EXCLUDED.units, revenue = sums.revenue + EXCLUDED.revenue`

// published is a server that takes the lock, looks whether the sales are added, and adds them. between is called after it has
// looked.
func published(t *testing.T, d *pgtest.Database, locks locking.Store, between func()) error {
	t.Helper()
	lease, err := locks.TryAcquire(t.Context(), "roll-up")
	if err != nil {
		return err
	}
	if added := d.Number(`SELECT count(*) FROM daily_sales`) > 0; !added {
		between()
		d.Exec(addUpAgain)
	}
	_ = locks.Release(t.Context(), lease)
	return nil
}

// The control: the server with the lock is slow, its lock is deleted as by a failover, and another one begins. Both have found
// that nothing is added. While the lock is there, they do not.
func TestBatch_WithTheLockAloneRollsUpTwiceWhenItIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"lost": true, "kept": false} {
		d, prefix := open(t), "rollup-"+rand.Text()
		d.Exec(`INSERT INTO roll_ups (day) SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::date FROM stock_movements`)
		one, other := redisRoller(t, roller(t, d), prefix), redisRoller(t, roller(t, d), prefix)
		client, err := redislock.Connect(servertest.Env(t, "SHOP_REDIS_URL"), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		err = published(t, d, one.Locks, func() {
			if lost {
				if _, err := (held.Redis{Client: client, Options: redislock.Options{Prefix: prefix}}).End(t.Context(), "roll-up"); err != nil {
					t.Fatal(err)
				}
			}
			if err := published(t, d, other.Locks, func() {}); errors.Is(err, locking.ErrBusy) == lost {
				t.Errorf("%s: the other server: %v", name, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := published(t, d, other.Locks, func() {}); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
		want := int64(1)
		if lost {
			want = 2
		}
		sold := d.Number(`SELECT -sum(quantity)::bigint FROM stock_movements`)
		if units := d.Number(`SELECT sum(units)::bigint FROM daily_sales`); sold == 0 || units != want*sold {
			t.Errorf("%s: %d units of %d are added, want %d times", name, units, sold, want)
		}
	}
}
