// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// behindProxy opens a DB whose connections go through a proxy, with all its statements prepared.
func (d *database) behindProxy(change func(*pgtx.Config)) (*pgtx.DB, *events, *servertest.Proxy) {
	d.T.Helper()
	p, through := servertest.ProxyURL(d.T, d.URL)
	db, e := d.open(pgtest.Pool(d.T, through, pgtest.Unhurried), change) // a test may hold a message
	warm := newRequest()
	for _, body := range []pgtx.Body{raise(warm, "b"), refuse("b")} {
		if _, err := db.Do(d.T.Context(), newRequest(), body); err != nil {
			d.T.Fatal(err)
		}
	}
	if _, err := d.Pool.Exec(d.T.Context(), `DELETE FROM effects`); err != nil {
		d.T.Fatal(err)
	}
	return db, e, p
}

// Every message of Do is lost once: the lookup, the read, the commit.
func TestDo_ConnectionCutAtAnyMessageIsOneEffect(t *testing.T) {
	t.Parallel()
	for name, cut := range servertest.Cuts {
		for outcome, status := range map[string]int{"effect": 201, "refusal": 409} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, nil)
				db, e, p := d.behindProxy(nil)
				messages, effects := 0, int64(0)
				for n, again := int64(1), true; again; n++ {
					disturb, hit := servertest.Nth(n, cut)
					p.OnRequest(disturb)
					req := newRequest()
					body := raise(req, "a")
					if status == 409 {
						body = refuse("a")
					} else {
						effects++
					}
					reply, err := db.Do(t.Context(), req, body)
					if err != nil || reply.Status != status {
						t.Errorf("message %d: %+v, %v", n, reply, err)
					}
					p.OnRequest(nil)
					d.want(effects)
					if again = hit.Load(); again {
						messages++
					}
				}
				if messages < 3 {
					t.Errorf("%d messages were lost, want at least 3", messages)
				}
				if a, r := e.Of(pgtx.Ambiguous), e.Of(pgtx.Resolved); a == 0 || r != a {
					t.Errorf("%d ambiguous, %d resolved, want all of at least 1", a, r)
				}
			})
		}
	}
}

// A key that is not found proves nothing: the COMMIT of the first transaction is under
// way, and arrives while the second transaction waits for its row.
func TestCommit_SecondTransactionWaitsForALateOne(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	db, _, p := d.behindProxy(nil)
	deliver := make(chan struct{})
	release := sync.OnceFunc(func() { close(deliver) })
	t.Cleanup(release) // runs before the proxy's cleanup, which waits for this delivery
	late, _ := servertest.Nth(3, func(b []byte, client, server net.Conn) bool {
		b = bytes.Clone(b)
		client.Close()
		<-deliver
		_, _ = server.Write(b)
		return false
	})
	p.OnRequest(late)
	req := newRequest()
	done := make(chan error)
	go func() {
		reply, err := db.Do(t.Context(), req, raise(req, "a"))
		if err == nil && !reply.Replayed {
			err = fmt.Errorf("%+v, want the reply of the first transaction", reply)
		}
		done <- err
	}()
	d.blocked(1)
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	d.want(1)
}

func TestCommit_ThatCannotBeDecidedIsOnlyUnknown(t *testing.T) {
	locktest.Slow(t, "the time limit of a Run")
	t.Parallel()
	for name, cut := range servertest.Cuts {
		d := newDatabase(t, nil)
		db, e, p := d.behindProxy(nil)
		disturb, _ := servertest.Nth(3, func(b []byte, client, server net.Conn) bool {
			p.Refuse()
			return cut(b, client, server)
		})
		p.OnRequest(disturb)
		req := newRequest()
		_, err := db.Do(t.Context(), req, raise(req, "a"))
		if !errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Fatalf("%s: %v, want ErrOutcomeUnknown", name, err)
		}
		for _, wrong := range []error{locking.ErrBusy, locking.ErrLost, context.Canceled, context.DeadlineExceeded} {
			if errors.Is(err, wrong) {
				t.Errorf("%s: %v also matches %v", name, err, wrong)
			}
		}
		if e.Of(pgtx.Resolved) != 0 {
			t.Errorf("%s: counted as resolved", name)
		}
		p.Up(t)
		if reply, err := db.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Status != 201 {
			t.Errorf("%s: the same key later: %+v, %v", name, reply, err)
		}
		d.want(1)
	}
}

// The first transaction committed, its reply was lost, and the second transaction cannot
// lock the row: the stored reply decides the outcome.
func TestCommit_WithoutReplyIsLookedUpWhenTheNextTransactionCannotRun(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	_, _, p := d.behindProxy(nil)
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr
	release := func() {}
	attempts := -1 // attempt 0 only prepares the statements
	db, e := d.open(pgtest.Pool(t, u.String(), "lock_timeout=100"), func(cfg *pgtx.Config) {
		cfg.Failpoint = func(_ context.Context, step pgtx.Step, _ string) {
			switch {
			case step == pgtx.AfterAcquire:
				if attempts++; attempts == 2 {
					release = d.Hold(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`) // waits for the end of the first
				}
			case step == pgtx.BeforeCommit && attempts == 1:
				cut, _ := servertest.Nth(1, func(_ []byte, client, _ net.Conn) bool { client.Close(); return false })
				p.OnReply(cut) // it is committed when its reply comes
			}
		}
	})
	if _, err := db.Do(t.Context(), newRequest(), raise(newRequest(), "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pool.Exec(t.Context(), `DELETE FROM effects`); err != nil {
		t.Fatal(err)
	}
	req := newRequest()
	reply, err := db.Do(t.Context(), req, raise(req, "a"))
	release()
	if err != nil || !reply.Replayed || reply.Status != 201 {
		t.Errorf("%+v, %v: want the reply of the first transaction", reply, err)
	}
	if a, r := e.Of(pgtx.Ambiguous), e.Of(pgtx.Resolved); a != 1 || r != 1 || attempts != 2 {
		t.Errorf("%d ambiguous, %d resolved in %d attempts, want 1 and 1 in 2", a, r, attempts)
	}
	d.want(1)
}

func TestDo_WithoutTheServerIsUnreachableUntilItIsBack(t *testing.T) {
	locktest.Slow(t, "it stops PostgreSQL")
	t.Parallel()
	d := newDatabase(t, nil)
	db, _, p := d.behindProxy(nil)
	p.Down()
	req := newRequest()
	if _, err := db.Do(t.Context(), req, raise(req, "a")); !errors.Is(err, pgtx.ErrUnreachable) || !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
	p.Up(t)
	if _, err := db.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Error(err)
	}
	d.want(1)
}

// The error of a server that is down has one sentence, with the address and the cause. Nothing in it is about a lock.
func TestDo_WithoutTheServerNamesItsAddressAndTheCause(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	db, _, p := d.behindProxy(nil)
	p.Down()
	req := newRequest()
	_, err := db.Do(t.Context(), req, raise(req, "a"))
	if !errors.Is(err, pgtx.ErrUnreachable) || !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrUnreachable, which is ErrBusy", err)
	}
	host, port, _ := net.SplitHostPort(p.Addr)
	for _, want := range []string{"look up the key", "no connection to PostgreSQL", host, port, "connection refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	for _, untrue := range []string{"busy", "holder", "COMMIT"} {
		if strings.Contains(err.Error(), untrue) {
			t.Errorf("%q is in %q", untrue, err)
		}
	}
}

// A server that shuts down commits, and then answers FATAL instead of COMMIT: that is
// neither a refusal nor a success.
func TestCommit_AnsweredByFatalIsDecidedByTheKey(t *testing.T) {
	t.Parallel()
	shutdown := pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
	fatal, err := shutdown.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := newDatabase(t, nil)
	db, e, p := d.behindProxy(nil)
	atCommit, _ := servertest.Nth(3, func([]byte, net.Conn, net.Conn) bool {
		var reply []byte
		p.OnReply(func(b []byte, client, _ net.Conn) bool {
			reply = append(reply, b...)
			if bytes.HasSuffix(reply, []byte("Z\x00\x00\x00\x05I")) { // ReadyForQuery, idle: the transaction is committed
				p.OnReply(nil)
				_, _ = client.Write(fatal)
				client.Close()
			}
			return false
		})
		return true
	})
	p.OnRequest(atCommit)
	req := newRequest()
	reply, err := db.Do(t.Context(), req, raise(req, "a"))
	if err != nil || reply.Status != 201 || !reply.Replayed || e.Of(pgtx.Ambiguous) != 1 || e.Of(pgtx.Resolved) != 1 {
		t.Errorf("%+v, %v, %d ambiguous, %d resolved", reply, err, e.Of(pgtx.Ambiguous), e.Of(pgtx.Resolved))
	}
	d.want(1)
}

func TestCommit_IsNotInterruptedWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	db, e, p := d.behindProxy(nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	disturb, _ := servertest.Nth(3, func([]byte, net.Conn, net.Conn) bool {
		leave()
		return true
	})
	p.OnRequest(disturb)
	req := newRequest()
	reply, err := db.Do(ctx, req, raise(req, "a"))
	if err != nil || reply.Status != 201 || e.Of(pgtx.Ambiguous) != 0 {
		t.Errorf("%+v, %v, %d ambiguous, want 201: the COMMIT was under way", reply, err, e.Of(pgtx.Ambiguous))
	}
	d.want(1)
}

// In the exec modes, as behind a pooler, an answer to COMMIT that is lost with its connection is unknown too: without a key nothing is
// repeated.
func TestRun_AnAnswerToCommitThatIsLostWithItsConnectionIsUnknown(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d, warm := newDatabase(t, nil), false
			p, through := servertest.ProxyURL(t, d.URL)
			db, _ := d.open(pgtest.Pool(t, through+"&default_query_exec_mode="+mode, pgtest.Unhurried), func(c *pgtx.Config) {
				c.Failpoint = func(_ context.Context, step pgtx.Step, _ string) {
					if step == pgtx.BeforeCommit && warm {
						cut, _ := servertest.Nth(1, func(_ []byte, client, _ net.Conn) bool { client.Close(); return false })
						p.OnReply(cut)
					}
				}
			})
			body := func(_ context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
				tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'a'`)
				return idempotency.Reply{}, nil
			}
			if _, err := db.Run(t.Context(), &pgtx.Op{}, body); err != nil {
				t.Fatal(err)
			}
			warm = true // its statements are prepared
			_, err := db.Run(t.Context(), &pgtx.Op{}, body)
			var n int64
			if scan := d.Pool.QueryRow(t.Context(), `SELECT n FROM counters WHERE name = 'a'`).Scan(&n); !errors.Is(err, locking.ErrOutcomeUnknown) || scan != nil || n != 2 {
				t.Errorf("%v, %d effects, %v: want ErrOutcomeUnknown, and one effect of each Run", err, n, scan)
			}
		})
	}
}
