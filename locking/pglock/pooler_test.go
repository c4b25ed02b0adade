// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// pooled is a schema behind a PgBouncer in transaction mode, which has two sessions of the server. Each client
// is a pool of its own.
type pooled struct {
	t   *testing.T
	url string
}

func newPooled(t *testing.T) pooled {
	t.Helper()
	return pooled{t, servertest.StartPooler(t, newSchema(t, servertest.Env(t, "SHOP_POSTGRES_URL")))}
}

func (p pooled) client() *pgxpool.Pool {
	p.t.Helper()
	return connect(p.t, p.url+"&default_query_exec_mode=exec", 3) // PgBouncer before 1.21 has no prepared statements
}

// occupy opens a transaction, which occupies the session that the next statement would use.
func (p pooled) occupy() (free func()) {
	p.t.Helper()
	tx := begin(p.t, p.client(), pgx.ReadCommitted)
	return func() {
		p.t.Helper()
		if err := tx.Rollback(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
}

func TestNewSessions_BehindATransactionPoolerHasTwoHoldersAndLeaks(t *testing.T) {
	t.Parallel()
	p := newPooled(t)
	pools := [2]*pgxpool.Pool{p.client(), p.client()}
	first, second := made(NewSessions(pools[0], Options{Prefix: "s"})), made(NewSessions(pools[1], Options{Prefix: "s"}))
	defer second.Close()

	lease := locktest.Taken(t, first, "k")
	// The second client's statement runs in the session of the first, which has the lock already.
	other := locktest.Taken(t, second, "k")

	// The statement that releases runs in the session that has no lock.
	free := p.occupy()
	if err := second.Release(t.Context(), other); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release in another session: %v, want ErrLost", err)
	}
	if err := first.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release in another session: %v, want ErrLost", err)
	}
	// Both clients have gone, and the lock is still held.
	first.Close()
	third := made(NewSessions(p.client(), Options{Prefix: "s"}))
	defer third.Close()
	_, err := third.TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	free()
}

func TestXactLock_BehindATransactionPoolerExcludesAndEnds(t *testing.T) {
	t.Parallel()
	p := newPooled(t)
	for range 2 { // the second time in a session that has had the lock
		one, two := begin(t, p.client(), pgx.ReadCommitted), begin(t, p.client(), pgx.ReadCommitted)
		if err := TryXactLock(t.Context(), one, "k"); err != nil {
			t.Fatal(err)
		}
		locktest.WantBusy(t, TryXactLock(t.Context(), two, "k"))
		for _, tx := range []pgx.Tx{one, two} {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestStore_BehindATransactionPoolerExcludesAndItsWaitersPoll(t *testing.T) {
	t.Parallel()
	p := newPooled(t)
	var stores [2]*opened
	for i := range stores {
		stores[i] = storeOn(t, p.client(), time.Minute)
	}
	lease := locktest.Taken(t, stores[0], "k")
	_, err := stores[1].TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	granted := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		_, err := stores[1].Acquire(ctx, "k")
		granted <- err
	}()
	if err := stores[0].Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("a waiter that hears no notification: %v", err)
	}
}
