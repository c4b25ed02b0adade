// SPDX-License-Identifier: MIT

package pglock

import (
	"cmp"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// A standby that never answers delays each commit that must not be lost. A grant must not, a release may: without it
// the lease ends by its TTL.
func TestRelease_DoesNotWaitForAStandby(t *testing.T) {
	locktest.Slow(t, "a PostgreSQL of its own")
	t.Parallel()
	_, url := startServer(t)
	pool := connect(t, url, 8)
	migrate(t, pool)
	store, err := New(pool, 30*time.Second, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	one, several := locktest.Taken(t, store, "a"), locktest.Taken(t, store, "b", "c")
	locktest.Released(t, store, locktest.Taken(t, store, "d")) // it has a row

	exec(t, pool, `ALTER SYSTEM SET synchronous_standby_names = 'absent'`)
	exec(t, pool, `SELECT pg_reload_conf()`)
	locktest.Eventually(t, "a grant waits for the standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lease, err := store.TryAcquire(ctx, "d")
		if err == nil {
			locktest.Released(t, store, lease)
		}
		return errors.Is(err, locking.ErrOutcomeUnknown)
	})
	for _, l := range []locking.Lease{one, several} {
		if err := store.Release(t.Context(), l); err != nil {
			t.Errorf("release %q: %v", l.Keys, err)
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM locks WHERE key IN ('a', 'b', 'c') AND owner = ''`); n != 3 {
		t.Errorf("%d of 3 keys are free", n)
	}
	exec(t, pool, `ALTER SYSTEM RESET synchronous_standby_names`)
	exec(t, pool, `SELECT pg_reload_conf()`)
}

// Commit tells an unknown outcome from a refusal, and from what was never sent.
func TestCommit_ClassifiesItsErrors(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, `CREATE TABLE commits (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	proxy, through := servertest.ProxyURL(t, pool.Config().ConnString())
	connected := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), through)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	conn := connected()
	begin := func(statement string) pgx.Tx {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), statement)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	if err := Commit(t.Context(), begin(`INSERT INTO commits VALUES (1)`), time.Minute); err != nil {
		t.Errorf("a commit: %v", err)
	}
	if err := Commit(t.Context(), begin(`INSERT INTO commits VALUES (1)`), time.Minute); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("refused by the server: %v", err)
	}
	tx := begin(`INSERT INTO commits VALUES (2)`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Commit(t.Context(), tx, time.Minute); !errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("a transaction that is over: %v", err)
	}
	tx = begin(`INSERT INTO commits VALUES (3)`)
	_ = conn.Close(t.Context())
	if err := Commit(t.Context(), tx, time.Minute); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("a connection that was closed before: %v", err)
	}
	conn = connected()
	tx = begin(`INSERT INTO commits VALUES (4)`)
	proxy.OnReply(func(_ []byte, client, _ net.Conn) bool { _ = client.Close(); return false })
	if err := Commit(t.Context(), tx, time.Minute); !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("the answer is lost with its connection: %v, want ErrOutcomeUnknown", err)
	}
	locktest.Eventually(t, "the transaction is committed all the same", func() bool {
		return number(t, pool, `SELECT count(*) FROM commits WHERE n = 4`) == 1
	})
}

// A request to take a key whose answer is lost with its connection is repeated, as one whose answer does not come is.
func TestTryAcquire_AnAnswerThatIsLostWithItsConnectionIsNotUnsent(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"prepared": "", "exec": "&default_query_exec_mode=exec"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			migrate(t, pool)
			proxy, through := servertest.ProxyURL(t, pool.Config().ConnString())
			store, err := New(connect(t, through+mode, 2), time.Minute, Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			locktest.Released(t, store, locktest.Taken(t, store, "k")) // it has a row, and the statements are prepared
			cut, hit := servertest.Nth(1, func(_ []byte, client, _ net.Conn) bool { _ = client.Close(); return false })
			proxy.OnReply(cut)
			lease, err := store.TryAcquire(t.Context(), "k")
			if err != nil || !hit.Load() {
				t.Fatalf("%+v, %v, cut: %v", lease, err, hit.Load())
			}
			locktest.Released(t, store, lease)
		})
	}
}

func TestBeginFunc_CommitsOrRollsBack(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, `CREATE TABLE commits (n int)`)
	failed := errors.New("no")
	for n, want := range []error{nil, failed} {
		err := BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO commits VALUES ($1)`, n)
			return cmp.Or(err, want)
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM commits`); n != 1 || pool.Stat().AcquiredConns() != 0 {
		t.Errorf("%d rows and %d connections in use, want 1 and 0", n, pool.Stat().AcquiredConns())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failed)
	if err := BeginFunc(ctx, pool, func(pgx.Tx) error { t.Error("it runs"); return nil }); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("after its ctx has ended: %v", err)
	}
}
