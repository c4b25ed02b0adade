// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
)

// waiting starts an Acquire and returns when its row is marked as awaited.
func waiting(t *testing.T, s locking.Waiter, pool *pgxpool.Pool, key string) <-chan locktest.Outcome[locking.Lease] {
	t.Helper()
	granted := locktest.Beside(func() (locking.Lease, error) { return s.Acquire(t.Context(), key) })
	locktest.Eventually(t, "the waiter marks the row", func() bool {
		return number(t, pool, `SELECT count(*) FROM locks WHERE key = $1 AND awaited`, key) == 1
	})
	return granted
}

// The waiter polls once an hour, so only the notification can wake it.
func TestAcquire_IsWokenByTheRelease(t *testing.T) {
	t.Parallel()
	holder, pool := newStore(t, time.Minute)
	o := settings(time.Minute)
	o.Pause = locking.Backoff{Base: time.Hour, Max: time.Hour}
	waiter := made(driver.New(newTable(pool, time.Minute), o))
	t.Cleanup(waiter.Close)
	for range 5 {
		held := locktest.Taken(t, holder, "a", "b")
		granted := waiting(t, waiter, pool, "b")
		if err := holder.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		lease, err := (<-granted).Pair()
		if err != nil || lease.Fence <= held.Fence {
			t.Fatalf("got %+v and %v after fence %d", lease, err, held.Fence)
		}
		if err := waiter.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
}

// The waiter never listens, as behind a pooler in transaction mode, which loses every notification.
func TestAcquire_SucceedsWithoutNotifications(t *testing.T) {
	t.Parallel()
	store, pool := newStore(t, time.Minute)
	deaf := made(driver.New(unheard{newTable(pool, time.Minute)}, settings(time.Minute)))
	t.Cleanup(deaf.Close)
	held := locktest.Taken(t, store, "k")
	granted := waiting(t, deaf, pool, "k")
	if err := store.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if lease, err := (<-granted).Pair(); err != nil || lease.Fence <= held.Fence {
		t.Errorf("got %+v and %v", lease, err)
	}
}

// A transaction that notifies keeps all others that notify from committing.
func TestRelease_NotifiesOnlyIfThereIsAWaiter(t *testing.T) {
	t.Parallel()
	store, pool := newStore(t, time.Minute)
	key := "only-of-" + t.Name() // the channel is that of the whole database
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`LISTEN pglock`)
	defer exec(`UNLISTEN pglock`)
	for range 3 {
		if err := store.Release(t.Context(), locktest.Taken(t, store, key)); err != nil {
			t.Fatal(err)
		}
	}
	held, other := locktest.Taken(t, store, key), storeOn(t, pool, time.Minute)
	granted := waiting(t, other, pool, key)
	if err := store.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	lease, err := (<-granted).Pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	exec(`SELECT pg_notify('pglock', 'the end of ` + key + `')`)
	for n := 0; ; {
		switch released, err := conn.Conn().WaitForNotification(t.Context()); {
		case err != nil:
			t.Fatal(err)
		case released.Payload == key:
			n++
		case released.Payload == "the end of "+key:
			if n != 1 {
				t.Errorf("%d notifications for 5 releases, of which one had a waiter", n)
			}
			return
		}
	}
}

// expiredBehindARow requests a key whose lease expires while the request waits for the row.
func expiredBehindARow(t *testing.T, pool *pgxpool.Pool) error {
	t.Helper()
	store := storeOn(t, pool, time.Second)
	locktest.Taken(t, store, "k")
	tx := begin(t, pool, pgx.ReadCommitted)
	if _, err := tx.Exec(t.Context(), `SELECT FROM locks FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	answer := locktest.Beside(func() (driver.Grant, error) { return store.Take(t.Context(), []string{"k"}, "other", true) })
	locktest.Eventually(t, "the request waits for the row", func() bool {
		return number(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, tx.Conn().PgConn().PID()) > 0
	})
	locktest.Eventually(t, "the lease expires", func() bool {
		return number(t, pool, `SELECT count(*) FROM locks WHERE expires < clock_timestamp()`) > 0
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := (<-answer).Pair()
	return err
}

func TestTryAcquire_ComparesWithTheClockAndNotWithTheStartOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	if err := expiredBehindARow(t, pool); err != nil {
		t.Errorf("got %v for an expired lease", err)
	}
	wrong, _, _ := edited(t, "AND expires > clock_timestamp();\n    IF FOUND", "AND expires > now();\n    IF FOUND")
	exec(t, pool, wrong)
	exec(t, pool, `DELETE FROM locks`)
	if err := expiredBehindARow(t, pool); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("with now(): got %v, want ErrBusy, or the test shows nothing", err)
	}
}

func TestTryAcquire_FenceGrowsOverTheDeletionOfItsRow(t *testing.T) {
	t.Parallel()
	store, pool := newStore(t, time.Minute)
	first := locktest.Taken(t, store, "k")
	exec(t, pool, `DELETE FROM locks`)
	if _, err := store.Renew(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	if second := locktest.Taken(t, storeOn(t, pool, time.Minute), "k"); second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// A request that is repeated, or that a network delivers twice, takes its keys once; when its lease
// is over, the duplicate does not revive it.
func TestTryAcquire_DuplicateRequestsMakeOneGrant(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, map[string][]string{"one key": {"a"}, "two keys": {"a", "b"}}, duplicateRequestsMakeOneGrant)
}

func duplicateRequestsMakeOneGrant(t *testing.T, keys []string) {
	store, _ := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, keys...)
	again := func() locking.Fence {
		grant, err := store.Take(t.Context(), lease.Keys, lease.Owner, false)
		if err != nil {
			t.Fatal(err)
		}
		return grant.Fence
	}
	if fence := again(); fence != lease.Fence {
		t.Errorf("fence %d for the second request, %d for the first", fence, lease.Fence)
	}
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if fence := again(); fence <= lease.Fence {
		t.Errorf("fence %d after the release of %d", fence, lease.Fence)
	}
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
}

// unheard is a table whose notifications are lost.
type unheard struct{ *table }

func (unheard) Listen(ctx context.Context, _ func(string)) error { <-ctx.Done(); return ctx.Err() }

func TestNew_WithoutAPoolIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, time.Minute, Options{}); !errors.Is(err, locking.ErrNoClient) {
		t.Errorf("New: got %v, want ErrNoClient", err)
	}
	if _, err := NewSessions(nil, Options{}); !errors.Is(err, locking.ErrNoClient) {
		t.Errorf("NewSessions: got %v, want ErrNoClient", err)
	}
}

func TestXactLock_WithoutATransactionIsAnError(t *testing.T) {
	t.Parallel()
	var typed *pgxpool.Tx
	for _, tx := range []Tx{nil, typed} {
		if err := XactLock(t.Context(), tx, "k"); !errors.Is(err, ErrNoTx) || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("XactLock: got %v, want ErrNoTx and the key", err)
		}
		if _, err := TryXactLease(t.Context(), tx, "k", "me", time.Minute); !errors.Is(err, ErrNoTx) {
			t.Errorf("TryXactLease: got %v, want ErrNoTx", err)
		}
		if err := Guard(t.Context(), tx, "k", 1); !errors.Is(err, locking.ErrUnfenced) {
			t.Errorf("Guard: got %v, want ErrUnfenced", err)
		}
	}
}

func TestNew_StoresWithAnotherPrefixDoNotExcludeEachOther(t *testing.T) {
	t.Parallel()
	_, pool := newStore(t, time.Minute)
	locktest.WantApart(t, func(prefix string) locking.Store {
		s, err := New(pool, time.Minute, Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	})
}
