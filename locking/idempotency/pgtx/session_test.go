// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// asRole returns the URL of the schema for a role of its own, which may use its tables. Statements of the test change
// the role, named by %s.
func (d *database) asRole() (roleURL string, change func(sql string)) {
	d.T.Helper()
	role := "r_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	change = func(sql string) {
		d.T.Helper()
		d.Exec(fmt.Sprintf(sql, role))
	}
	change(`CREATE ROLE %s LOGIN PASSWORD 'r'`)
	d.T.Cleanup(func() {
		change(`DROP OWNED BY %s`)
		change(`DROP ROLE %s`)
	})
	change(`DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA ' || current_schema() || ' TO %[1]s; GRANT ALL ON ALL TABLES IN SCHEMA ' || current_schema() || ' TO %[1]s'; END $$`)
	u, err := url.Parse(d.URL)
	if err != nil {
		d.T.Fatal(err)
	}
	u.User = url.UserPassword(role, "r")
	return u.String(), change
}

// A pool makes connections in the background, with a ctx that has no deadline.
func TestPool_IsFreeOfConnectionsThatAServerLeftHalfMade(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	d := newDatabase(t, nil)
	p, through := servertest.ProxyURL(t, d.URL)
	cfg, err := pgtx.PoolConfig(through)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	pool := pgtest.Open(t, cfg)
	var silent, lost atomic.Int32
	silent.Store(1)
	p.OnRequest(func(b []byte, _, _ net.Conn) bool {
		if login := b[0] == 0 || b[0] == 'p'; login || silent.Load() == 0 {
			return true
		}
		lost.Add(1) // the first statement
		return false
	})
	for range cfg.MaxConns {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, _ = pool.Exec(ctx, `SELECT 1`)
		}()
	}
	locktest.Eventually(t, "each connection waits for an answer", func() bool { return lost.Load() >= cfg.MaxConns })
	silent.Store(0)
	locktest.Eventually(t, "the pool has connections", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return pool.Ping(ctx) == nil
	})
}

// PostgreSQL refuses writes: the server behind the address is a standby now, or its disk is full.
func TestReadOnly_IsBusyAndEndsWithItsSessions(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	roleURL, change := d.asRole()
	db, _ := d.open(pgtest.Pool(t, roleURL), nil)
	change(`ALTER ROLE %s SET default_transaction_read_only = on`)
	for _, begin := range []string{pgtx.BeginReadCommitted, pgtx.BeginSerializable} {
		req := newRequest()
		_, err := db.Run(t.Context(), &pgtx.Op{Request: req, Begin: begin}, raise(req, "a"))
		if !errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want ErrBusy", begin, err)
		}
	}
	change(`ALTER ROLE %s RESET default_transaction_read_only`)
	req := newRequest()
	locktest.Eventually(t, "the pool has new sessions, which write", func() bool {
		_, err := db.Do(t.Context(), req, raise(req, "a"))
		return err == nil
	})
	d.want(1)
}

func TestRevoked_IsBusy(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	roleURL, change := d.asRole()
	db, _ := d.open(pgtest.Pool(t, roleURL), nil)
	change(`REVOKE INSERT ON effects FROM %s`)
	req := newRequest()
	if _, err := db.Do(t.Context(), req, raise(req, "a")); !errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "42501") {
		t.Errorf("%v, want ErrBusy and its cause", err)
	}
	d.want(0)
	change(`GRANT INSERT ON effects TO %s`)
	if _, err := db.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Error(err)
	}
	d.want(1)
}

// Nothing was sent, whatever the reason.
func TestUnavailable_IsEveryLoginThatIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	for code, how := range map[string]struct{ sql, path string }{
		"28000": {sql: `ALTER ROLE %s NOLOGIN`},
		"28P01": {sql: `ALTER ROLE %s PASSWORD 'other'`},
		"53300": {sql: `ALTER ROLE %s CONNECTION LIMIT 0`},
		"3D000": {sql: `SELECT '%s'`, path: "/none"},
	} {
		t.Run(code, func(t *testing.T) {
			roleURL, change := d.asRole()
			change(how.sql)
			u, err := url.Parse(roleURL)
			if err != nil {
				t.Fatal(err)
			}
			if how.path != "" {
				u.Path = how.path
			}
			pool := pgtest.Pool(t, u.String())
			if err := pool.Ping(t.Context()); !strings.Contains(fmt.Sprint(err), code) || !pgtx.Unavailable(err) {
				t.Errorf("%v: want %s, unavailable", err, code)
			}
			db, _ := d.open(pool, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req := newRequest()
			if _, err := db.Do(ctx, req, raise(req, "a")); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) {
				t.Errorf("Do: %v", err)
			}
		})
	}
}

// A prepared statement that returns another type since its table was altered fails once, on each connection.
func TestRead_OfAnAlteredTableIsRepeated(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	read := func() error {
		return d.Read(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			var n int64
			return conn.QueryRow(ctx, `SELECT n FROM counters WHERE name = 'a'`).Scan(&n)
		})
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	d.Exec(`ALTER TABLE counters ALTER COLUMN n TYPE integer`)
	if err := read(); err != nil {
		t.Error(err)
	}
}

// execModes are the modes of pgx, as a URL names them.
var execModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// COMMIT is in the round trip that was not sent.
func TestCommit_ThatCouldNotBeSentIsNotUnknown(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, nil)
			db, e := d.open(pgtest.Pool(t, d.URL+"&default_query_exec_mode="+mode), nil)
			for what, bad := range map[string]pgtx.Body{
				"in the first round trip": func(_ context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
					tx.Queue(`INSERT INTO effects VALUES ($1, 'x')`, make(chan int))
					return idempotency.Reply{Status: 201}, nil
				},
				"in the second": func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
					if err := tx.Flush(ctx); err != nil {
						return idempotency.Reply{}, err
					}
					tx.Queue(`UPDATE counters SET n = n + 1`)
					tx.Queue(`INSERT INTO effects VALUES ($1, 'x')`, make(chan int))
					return idempotency.Reply{Status: 201}, nil
				},
			} {
				_, err := db.Do(t.Context(), newRequest(), bad)
				if err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
					t.Errorf("%s: %v, want an error that says that nothing was done", what, err)
				}
			}
			if n := e.Of(pgtx.Ambiguous) + e.Of(pgtx.Retried); n != 0 {
				t.Errorf("%d attempts were repeated", n)
			}
			d.want(0)
			req := newRequest()
			if _, err := db.Do(t.Context(), req, raise(req, "a")); err != nil {
				t.Error(err)
			}
			d.want(1)
		})
	}
}

func TestPoolConfig_TakesIDsInEveryMode(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	for _, mode := range execModes {
		pool := pgtest.Pool(t, d.URL+"&default_query_exec_mode="+mode)
		for _, ids := range []any{[]uuid.UUID{uuid.New(), uuid.New()}, [][16]byte{uuid.New(), uuid.New()}} {
			var n int
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM unnest($1::uuid[])`, ids).Scan(&n); err != nil || n != 2 {
				t.Errorf("%s, %T: %d, %v", mode, ids, n, err)
			}
		}
	}
}

func TestCheck_SaysWhatAPoolerTakesAway(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	if err := pgtx.Check(t.Context(), d.Pool); err != nil {
		t.Errorf("without a pooler: %v", err)
	}
	pooled := servertest.StartPooler(t, d.URL, "ignore_startup_parameters = lock_timeout,statement_timeout,idle_in_transaction_session_timeout,extra_float_digits")
	for _, c := range []struct{ settings, want string }{
		{"", "default_query_exec_mode=exec"},
		{"&default_query_exec_mode=exec", "SET lock_timeout = '2000'"},
		{"&default_query_exec_mode=exec&lock_timeout=0&statement_timeout=0&idle_in_transaction_session_timeout=0", ""},
	} {
		err := pgtx.Check(t.Context(), pgtest.Pool(t, pooled+c.settings))
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, pgtx.ErrPooler) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.settings, err, c.want)
		}
	}
	refusing := servertest.StartPooler(t, d.URL)
	if err := pgtx.Check(t.Context(), pgtest.Pool(t, refusing)); err == nil {
		t.Error("a pooler that refuses start-up parameters is accepted")
	}
}

// With the remedies of Check, and with one session for two clients, each request takes effect once.
func TestRun_BehindAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	pooled := servertest.StartPooler(t, d.URL, "ignore_startup_parameters = lock_timeout,statement_timeout,idle_in_transaction_session_timeout,extra_float_digits")
	for _, mode := range []string{"exec", "simple_protocol"} {
		for range 2 {
			db, _ := d.open(pgtest.Pool(t, pooled+"&default_query_exec_mode="+mode), nil)
			for range 10 {
				req := newRequest()
				if _, err := db.Do(t.Context(), req, raise(req, "a")); err != nil {
					t.Fatalf("%s: %v", mode, err)
				}
				if reply, err := db.Do(t.Context(), req, raise(req, "a")); err != nil || !reply.Replayed {
					t.Fatalf("%s: %+v, %v", mode, reply, err)
				}
			}
		}
	}
	d.want(40)
	left := pgtest.Pool(t, pooled+"&default_query_exec_mode=exec")
	var settings string
	err := left.QueryRow(t.Context(), `SELECT current_setting('lock_timeout') || current_setting('statement_timeout') || coalesce(current_setting('transaction_timeout', true), '0')`).Scan(&settings)
	if err != nil || settings != "000" {
		t.Errorf("other clients of the pooler get the limits %q, %v", settings, err)
	}
}
