// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// A wait may be longer than the limit of an answer, and no limit stays on a connection of the pool.
func TestSession_LimitsOnlyItsOwnAnswers(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	other := sessionsIn(t, pool, store.space)
	lease := locktest.Taken(t, store, "k")
	_, err := other.TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	granted := locktest.Beside(func() (locking.Lease, error) { return other.Acquire(t.Context(), "k") })
	locktest.Eventually(t, "the waiter is in the queue", func() bool { return inServer(t, pool, store.space+"k") == 1 })
	time.Sleep(answerTimeout + 100*time.Millisecond)
	locktest.Released(t, store, lease)
	lease, err = (<-granted).Pair()
	must(t, err)
	_, err = other.Renew(t.Context(), lease)
	must(t, err)
	locktest.Released(t, other, lease)
	var all sync.WaitGroup
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		all.Go(func() {
			defer conn.Release()
			if _, err := conn.Exec(t.Context(), `SELECT pg_sleep($1)`, (answerTimeout + 100*time.Millisecond).Seconds()); err != nil {
				t.Errorf("a later statement: %v", err)
			}
		})
	}
	all.Wait()
}

// mute is a connection that loses what is written while it is silent.
type mute struct {
	net.Conn
	silent *atomic.Bool
}

func (c mute) Write(b []byte) (int, error) {
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func TestSession_WaitsForAnAnswerForASecond(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	config, err := pgxpool.ParseConfig(servertest.Env(t, "SHOP_POSTGRES_URL"))
	must(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if silent.Load() { // the connection of a CancelRequest: without it the session keeps its lock for 15 s
			return conn, err
		}
		return mute{conn, &silent}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	store := made(NewSessions(pool, Options{Prefix: rand.Text()}))
	t.Cleanup(store.Close)
	for name, request := range map[string]func(locking.Lease) error{
		"acquire": func(locking.Lease) error { _, err := store.Acquire(context.Background(), "k"); return err },
		"release": func(l locking.Lease) error { return store.Release(context.Background(), l) },
	} {
		locktest.Released(t, store, locktest.Taken(t, store, "k")) // the statements are prepared
		var lease locking.Lease
		if name == "release" {
			lease = locktest.Taken(t, store, "k")
		}
		silent.Store(true)
		start := time.Now()
		err := request(lease)
		silent.Store(false)
		if took := time.Since(start); !errors.Is(err, locking.ErrOutcomeUnknown) || took < answerTimeout || took > 5*answerTimeout {
			t.Errorf("%s: got %v after %v, want ErrOutcomeUnknown after %v", name, err, took, answerTimeout)
		}
	}
}

func TestSession_ReleaseThatIsRefusedFreesTheKey(t *testing.T) {
	t.Parallel()
	store, _ := newSessions(t)
	lease := locktest.Taken(t, store, "k")
	x, _ := store.sessions.Of(lease)
	_, err := x.conn.Exec(t.Context(), `BEGIN`)
	must(t, err)
	_, err = x.conn.Exec(t.Context(), `SELECT 1/0`)
	if err == nil {
		t.Fatal("want a transaction that refuses everything")
	}
	if err := store.Release(t.Context(), lease); err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want the error of the server", err)
	}
	_, err = store.Acquire(t.Context(), "k")
	must(t, err)
}

// The statement of a waiter that gives up may have taken the lock before it was canceled.
func TestSession_AbandonLeavesNoLock(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	x, err := store.sessions.Open(t.Context(), "k", true)
	must(t, err)
	x.abandon()
	if n := pool.Stat().TotalConns(); n != 1 {
		t.Errorf("the pool has %d connections, want that of the waiter", n)
	}
	other := sessionsIn(t, connect(t, pool.Config().ConnString(), 1), store.space)
	locktest.Released(t, other, locktest.Taken(t, other, "k"))
}

// Close ends the waiters that have no connection, and those behind them.
func TestSession_CloseEndsTheWaitForAConnection(t *testing.T) {
	t.Parallel()
	full := connect(t, servertest.Env(t, "SHOP_POSTGRES_URL"), 1)
	holder := made(NewSessions(full, Options{Prefix: rand.Text()}))
	t.Cleanup(holder.Close)
	locktest.Taken(t, holder, "k")

	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for name, pool := range map[string]*pgxpool.Pool{
		"others use the pool":  full,
		"the server is silent": connect(t, "postgres://user@"+silent.Addr().String()+"/db?sslmode=disable", 4),
	} {
		const waiters = 3
		store := made(NewSessions(pool, Options{Prefix: rand.Text()}))
		results := make(chan error, waiters)
		for range waiters {
			go func() {
				_, err := store.Acquire(context.Background(), "k")
				results <- err
			}()
		}
		time.Sleep(50 * time.Millisecond) // they wait; if not, the test is weaker, not wrong
		store.Close()
		for range waiters {
			select {
			case err := <-results:
				if !errors.Is(err, locking.ErrClosed) {
					t.Errorf("%s: got %v, want ErrClosed", name, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: a waiter still waits after Close", name)
			}
		}
	}
}
