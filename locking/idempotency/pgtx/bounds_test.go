// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestWait_ForARowIsBounded(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	release := d.Hold(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
	req := newRequest()
	for setting, db := range map[string]*pgtx.DB{"lock_timeout=100": nil, "statement_timeout=100": nil} {
		db, _ = d.open(pgtest.Pool(t, d.URL, setting), nil)
		if _, err := db.Do(t.Context(), req, raise(req, "a")); !errors.Is(err, locking.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", setting, err)
		}
	}
	release()
	if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Errorf("%v, although the row and the key are free", err)
	}
	d.want(1)
}

// The lookup comes first, so a request that times out there has had no effect.
func TestLookup_ThatTimesOutIsBusy(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	release := d.Hold(`LOCK TABLE idempotency_keys`)
	req := newRequest()
	for _, setting := range []string{"lock_timeout=100", "statement_timeout=100"} {
		db, _ := d.open(pgtest.Pool(t, d.URL, setting), nil)
		if _, _, err := db.Lookup(t.Context(), req); !errors.Is(err, locking.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", setting, err)
		}
	}
	release()
	d.want(0)
}

func TestWait_EndsWithTheCallersDeadline(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	release := d.Hold(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req := newRequest()
	if _, err := d.Do(ctx, req, raise(req, "a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
	release()
	d.want(0)
}

// within bounds a wait that would otherwise last for ever: its error is then DeadlineExceeded.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestWait_ForAConnectionIsBounded(t *testing.T) {
	locktest.Slow(t, "the time limit of a connection")
	t.Parallel()
	d := newDatabase(t, nil)
	settings, err := pgtx.PoolConfig(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	settings.MaxConns = 1
	pool := pgtest.Open(t, settings)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	db, _ := d.open(pool, func(cfg *pgtx.Config) { cfg.Limit = time.Hour })
	req := newRequest()
	if _, err := db.Do(within(t), req, raise(req, "a")); !errors.Is(err, locking.ErrBusy) || !errors.Is(err, pgtx.ErrUnreachable) {
		t.Errorf("%v, want ErrUnreachable, which is ErrBusy", err)
	}
}

// No time-out of the server ends the wait for a server that accepts requests and sends
// nothing. Before COMMIT the error is busy; after COMMIT was sent it is unknown.
func TestWait_ForASilentServerIsBounded(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	for message, want := range map[int64]error{1: locking.ErrBusy, 2: locking.ErrBusy, 3: locking.ErrOutcomeUnknown} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, nil)
			db, _, p := d.behindProxy(func(cfg *pgtx.Config) { cfg.Limit = 4 * time.Second })
			silence, _ := servertest.Nth(message, func([]byte, net.Conn, net.Conn) bool {
				p.OnReply(func([]byte, net.Conn, net.Conn) bool { return false })
				return true
			})
			p.OnRequest(silence)
			req := newRequest()
			if _, err := db.Do(within(t), req, raise(req, "a")); !errors.Is(err, want) {
				t.Errorf("silent from message %d: %v, want %v", message, err, want)
			}
			p.OnReply(nil)
			p.Cut()
			if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
				t.Errorf("the same key again: %v", err)
			}
			d.want(1)
		})
	}
}

// A process that is stopped in a transaction, as by SIGSTOP, loses its row lock before
// the requests that wait for it time out.
func TestWait_OutlastsAStoppedHolder(t *testing.T) {
	locktest.Slow(t, "the time limit of a lock")
	t.Parallel()
	reached, resume := make(chan struct{}), make(chan struct{})
	d := newDatabase(t, nil)
	stopped, e := d.open(pgtest.Pool(t, d.URL), failpoint(locktest.OnceAt(pgtx.AfterGuard, func(context.Context) {
		close(reached)
		<-resume
	})))
	done := make(chan error)
	go func() {
		req := newRequest()
		_, err := stopped.Do(t.Context(), req, raise(req, "a"))
		done <- err
	}()
	<-reached
	req := newRequest()
	if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Errorf("behind a stopped holder: %v", err)
	}
	close(resume)
	if err := <-done; err != nil {
		t.Errorf("the stopped holder: %v", err)
	}
	if e.Of(pgtx.Retried)+e.Of(pgtx.Ambiguous) == 0 {
		t.Error("the server did not end its transaction")
	}
	d.want(2)
}
