// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// After the lookup there are two round trips, and no extra one for a refusal's ROLLBACK.
func TestDo_RoundTrips(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	db, _, p := d.behindProxy(nil)
	var trips atomic.Int64
	p.OnRequest(func(b []byte, _, _ net.Conn) bool {
		if n := len(b); n >= 5 && string(b[n-5:]) == "S\x00\x00\x00\x04" { // Sync
			trips.Add(1)
		}
		return true
	})
	req := newRequest()
	for name, body := range map[string]pgtx.Body{"effect": raise(req, "a"), "refusal": refuse("a")} {
		trips.Store(0)
		if _, err := db.Do(t.Context(), newRequest(), body); err != nil {
			t.Fatal(err)
		}
		if got := trips.Load(); got != 3 {
			t.Errorf("%s: %d round trips, want 3", name, got)
		}
	}
}

// Without a row lock, two transactions that read the same value conflict, and the loser
// is retried, its body included.
func TestRun_RetriesTheWholeTransactionAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, failpoint(locktest.MeetAt(2, pgtx.AfterGuard)))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			op := &pgtx.Op{Request: newRequest(), Begin: pgtx.BeginSerializable}
			if _, err := d.Run(t.Context(), op, raiseBy(op.Request, "a", `SELECT n FROM counters WHERE name = $1`)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if d.Of(pgtx.Retried) == 0 {
		t.Error("nothing was retried: the transactions did not conflict")
	}
	d.want(2)
}

func TestRun_ADeadlockIsRetried(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, failpoint(locktest.MeetAt(2, pgtx.AfterGuard)))
	pool := pgtest.Pool(t, d.URL, "lock_timeout=0")
	db, e := d.open(pool, failpoint(locktest.MeetAt(2, pgtx.AfterGuard)))
	both := func(first, second string) pgtx.Body {
		return func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			if _, err := pgtx.Select[int64](ctx, tx, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`, first); err != nil {
				return idempotency.Reply{}, err
			}
			if err := tx.Step(ctx, pgtx.AfterGuard); err != nil {
				return idempotency.Reply{}, err
			}
			tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = $1`, second)
			return idempotency.Reply{Status: 201}, nil
		}
	}
	var wg sync.WaitGroup
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			if _, err := db.Run(t.Context(), &pgtx.Op{Request: newRequest()}, both(pair[0], pair[1])); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if e.Of(pgtx.Retried) == 0 {
		t.Error("nothing was retried: the transactions did not deadlock")
	}
	if got := d.Number(`SELECT sum(n)::bigint FROM counters`); got != 2 {
		t.Errorf("%d raises, want 2", got)
	}
}

func TestRun_RetriesAreBoundedAndEndAsBusy(t *testing.T) {
	locktest.Slow(t, "twenty attempts")
	t.Parallel()
	d := newDatabase(t, nil)
	attempts := 0
	for name, c := range map[string]struct {
		body  pgtx.Body
		event pgtx.Event
	}{
		"guard": {func(_ context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			attempts++
			tx.Queue(`UPDATE counters SET n = 2000 WHERE name = 'a'`)
			return idempotency.Reply{Status: 201}, nil
		}, pgtx.GuardTripped},
		"ErrRetry": {func(context.Context, *pgtx.Tx) (idempotency.Reply, error) {
			attempts++
			return idempotency.Reply{}, pgtx.ErrRetry
		}, pgtx.Retried},
	} {
		attempts = 0
		if _, err := d.Do(t.Context(), newRequest(), c.body); !errors.Is(err, locking.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", name, err)
		}
		if attempts != 20 || d.Of(c.event) != 20 {
			t.Errorf("%s: %d attempts, %d counted, want 20", name, attempts, d.Of(c.event))
		}
	}
	d.want(0)
}

func TestRun_ReturnsTheViolationOfAnotherConstraint(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, func(cfg *pgtx.Config) { cfg.Guards = nil })
	_, err := d.Do(t.Context(), newRequest(), func(_ context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		tx.Queue(`UPDATE counters SET n = 2000 WHERE name = 'a'`)
		return idempotency.Reply{Status: 201}, nil
	})
	if err == nil || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("%v, want the violation unchanged", err)
	}
	d.want(0)
}

// PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, without an error.
func TestCommit_AnsweredRollbackIsNoSuccess(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	attempts := 0
	_, err := d.Run(t.Context(), &pgtx.Op{}, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'b'`)
		if attempts++; attempts == 1 {
			_, _ = pgtx.Select[int64](ctx, tx, `SELECT 1 / 0`) // the body's mistake: it ignores the error
		}
		return idempotency.Reply{}, nil
	})
	if err != nil || attempts != 2 {
		t.Errorf("%v after %d attempts, want success after 2", err, attempts)
	}
	if got := d.Number(`SELECT n FROM counters WHERE name = 'b'`); got != 1 {
		t.Errorf("counter %d, want 1", got)
	}
}

func TestRun_WithoutAKeyStoresNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	if _, err := d.Do(t.Context(), idempotency.Request{}, refuse("a")); !errors.Is(err, idempotency.ErrKey) {
		t.Errorf("Do: %v, want ErrKey", err)
	}
	if _, err := d.Run(t.Context(), &pgtx.Op{}, raise(newRequest(), "a")); err != nil {
		t.Error(err)
	}
	if got := d.Number(`SELECT count(*) FROM idempotency_keys`); got != 0 {
		t.Errorf("%d keys were stored", got)
	}
}

// Without a key a second transaction could take effect again, so Run ends at a COMMIT without an answer.
func TestRun_WithoutAKeyIsNotRunAgainAfterACommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, cut := range servertest.Cuts {
		d := newDatabase(t, nil)
		db, e, p := d.behindProxy(nil)
		unknown := int64(0)
		for n, again := int64(1), true; again; n++ {
			disturb, hit := servertest.Nth(n, cut)
			p.OnRequest(disturb)
			one := newRequest()
			_, err := db.Run(t.Context(), &pgtx.Op{}, raise(one, "a"))
			p.OnRequest(nil)
			effects := d.Number(`SELECT count(*) FROM effects WHERE client_id = $1`, one.Client)
			switch {
			case errors.Is(err, locking.ErrOutcomeUnknown) && effects <= 1:
				unknown++
			case err != nil, effects != 1:
				t.Errorf("%s, message %d: %d effects, %v", name, n, effects, err)
			}
			again = hit.Load()
		}
		if a, r := e.Of(pgtx.Ambiguous), e.Of(pgtx.Resolved); unknown == 0 || int64(a) != unknown || r != 0 {
			t.Errorf("%s: %d ambiguous, %d returned as unknown, %d resolved, want one of the first two at least, and none resolved", name, a, unknown, r)
		}
	}
}

// Statements that a deferred body flushes before Begin are committed on their own.
func TestOp_DeferredBeginsAtTxBegin(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	stays := errors.New("stays")
	_, err := d.Run(t.Context(), &pgtx.Op{Request: newRequest(), Deferred: true}, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'a'`)
		if err := tx.Flush(ctx); err != nil {
			return idempotency.Reply{}, err
		}
		if err := tx.Begin(ctx, ""); err != nil {
			return idempotency.Reply{}, err
		}
		tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'b'`)
		if err := tx.Flush(ctx); err != nil {
			return idempotency.Reply{}, err
		}
		if err := tx.Begin(ctx, ""); err == nil {
			t.Error("a second BEGIN")
		}
		return idempotency.Reply{}, stays
	})
	if !errors.Is(err, stays) {
		t.Error(err)
	}
	if a, b := d.Number(`SELECT n FROM counters WHERE name = 'a'`), d.Number(`SELECT n FROM counters WHERE name = 'b'`); a != 1 || b != 0 {
		t.Errorf("counters %d and %d, want 1 and 0", a, b)
	}
	_, err = d.Run(t.Context(), &pgtx.Op{Request: newRequest(), Deferred: true}, func(context.Context, *pgtx.Tx) (idempotency.Reply, error) {
		return idempotency.Reply{Status: 201}, nil
	})
	if err == nil {
		t.Error("a reply was stored without a transaction")
	}
}

// A deferred body commits a transaction of its own, and then begins another one.
func TestOp_DeferredBeginsAgainAfterItsOwnCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	stays := errors.New("stays")
	_, err := d.Run(t.Context(), &pgtx.Op{Request: newRequest(), Deferred: true}, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		for _, counter := range []string{"a", "b"} {
			if err := tx.Begin(ctx, ""); err != nil {
				return idempotency.Reply{}, err
			}
			tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = $1`, counter)
			if counter == "a" {
				tx.Queue("commit")
			}
			if err := tx.Flush(ctx); err != nil {
				return idempotency.Reply{}, err
			}
		}
		return idempotency.Reply{}, stays
	})
	if !errors.Is(err, stays) {
		t.Error(err)
	}
	if a, b := d.Number(`SELECT n FROM counters WHERE name = 'a'`), d.Number(`SELECT n FROM counters WHERE name = 'b'`); a != 1 || b != 0 {
		t.Errorf("counters %d and %d, want 1 and 0", a, b)
	}
}

// With KeyHere, a row that is locked in the round trip of COMMIT is locked before the
// key is inserted: no other request waits for the key of a transaction that waits for
// the row.
func TestTx_KeyHereLocksTheRowsBeforeTheKey(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	release := d.Hold(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
	req := newRequest()
	done := make(chan error)
	go func() {
		_, err := d.Run(t.Context(), &pgtx.Op{Request: req}, func(_ context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'a'`)
			tx.KeyHere()
			tx.Queue(`INSERT INTO effects VALUES ($1, $2)`, req.Client, req.Key)
			return idempotency.Reply{Status: 201}, nil
		})
		done <- err
	}()
	d.blocked(1)
	d.Hold(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, req.Client, req.Key, req.Fingerprint[:])() // does not wait
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	d.want(1)
}

func TestLookup_SendsMoreInTheSameRoundTrip(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req := newRequest()
	for _, replayed := range []bool{false, true} {
		more, names := pgtx.Alongside[string](`SELECT name FROM counters WHERE name = $1`, "b")
		reply, found, err := d.Lookup(t.Context(), req, more)
		if err != nil || found != replayed || reply.Replayed != replayed || len(*names) != 1 || (*names)[0] != "b" {
			t.Errorf("%+v, %v, %v; alongside %q", reply, found, err, *names)
		}
		if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSelect_ScansStructsByPositionAndSingleValues(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	type row struct {
		ID uuid.UUID
		At time.Time
		N  *int64
	}
	id := uuid.New()
	_, err := d.Run(t.Context(), &pgtx.Op{}, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		flags := pgtx.QueueRows[bool](tx, `VALUES (true), (false)`)
		written := tx.Queue(`UPDATE counters SET n = n`)
		times := pgtx.QueueRows[time.Time](tx, `SELECT now()`)
		rows, err := pgtx.Select[row](ctx, tx, `SELECT $1::uuid, now(), NULL::bigint`, id)
		if err != nil {
			return idempotency.Reply{}, err
		}
		if len(*flags) != 2 || !(*flags)[0] || (*flags)[1] || len(*times) != 1 || written.RowsAffected() != 2 {
			t.Errorf("%v, %v, %v", *flags, *times, written)
		}
		if len(rows) != 1 || rows[0].ID != id || rows[0].N != nil || !rows[0].At.Equal((*times)[0]) {
			t.Errorf("%+v", rows)
		}
		return idempotency.Reply{}, nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNew_RefusesAPoolWithoutLimits(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	for name, cfg := range map[string]pgtx.Config{"no pool": {}, "no limits": {Pool: pgtest.Pool(t, d.URL, "lock_timeout=")}} {
		if _, err := pgtx.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPoolConfig_BoundsEveryWaitOfEveryConnection(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	limits := map[string]string{
		"lock_timeout": "2s", "statement_timeout": "4s", "idle_in_transaction_session_timeout": "1500ms",
	}
	for name, limit := range limits {
		for setting, want := range map[string]string{"": limit, name + "=7000": "7s"} { // of the URL
			pool := d.Pool
			if setting != "" {
				pool = pgtest.Pool(t, d.URL+"&"+setting)
			}
			var got string
			if err := pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil || got != want {
				t.Errorf("%s with %q in the URL is %q, %v, want %q", name, setting, got, err, want)
			}
		}
	}
}
