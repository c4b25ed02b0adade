// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

func TestMain(m *testing.M) {
	if step := os.Getenv("PGTX_KILL_AT"); step != "" {
		child(pgtx.Step(step)) // see kill_test.go
	}
	goleak.VerifyTestMain(m)
}

// database is a schema on the real server: counters to increment, and a row in effects
// for each increment. Only the idempotency key prevents a second row.
type database struct {
	*pgtx.DB
	*pgtest.Database
	*events
}

type events = locktest.Counts[pgtx.Event]

const schema = `
	CREATE TABLE counters (
		name text PRIMARY KEY,
		n    bigint NOT NULL CONSTRAINT counters_enough CHECK (n <= 1000)
	);
	CREATE TABLE effects (client_id uuid NOT NULL, key text NOT NULL);
	INSERT INTO counters VALUES ('a', 0), ('b', 0);`

// newDatabase makes a schema and opens a DB on it; cfg may be nil.
func newDatabase(t testing.TB, cfg func(*pgtx.Config)) *database {
	t.Helper()
	d := &database{Database: pgtest.New(t)}
	d.Exec(schema)
	conn, err := d.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := pgtx.Migrate(t.Context(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
	d.DB, d.events = d.open(d.Pool, cfg)
	return d
}

// open makes another DB, as another process would have.
func (d *database) open(pool *pgxpool.Pool, change func(*pgtx.Config)) (*pgtx.DB, *events) {
	d.T.Helper()
	e := &events{}
	cfg := pgtx.Config{Pool: pool, Guards: []string{"counters_enough"}, Count: e.Count}
	if change != nil {
		change(&cfg)
	}
	db, err := pgtx.New(cfg)
	if err != nil {
		d.T.Fatal(err)
	}
	return db, e
}

// newRequest returns a request with a new key of a new client.
func newRequest() idempotency.Request {
	return idempotency.Request{Client: uuid.New(), Key: uuid.NewString(), Fingerprint: [32]byte{1}}
}

// raise returns a body that reads a counter under its lock and writes the next value,
// which is also its reply.
func raise(req idempotency.Request, name string) pgtx.Body {
	return raiseBy(req, name, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`)
}

func raiseBy(req idempotency.Request, name, read string) pgtx.Body {
	return func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		n, err := pgtx.Select[int64](ctx, tx, read, name)
		if err != nil {
			return idempotency.Reply{}, err
		}
		if len(n) == 0 {
			return idempotency.Reply{}, errors.New("no such counter")
		}
		if err := tx.Step(ctx, pgtx.AfterGuard); err != nil {
			return idempotency.Reply{}, err
		}
		tx.Queue(`UPDATE counters SET n = $2 WHERE name = $1`, name, n[0]+1)
		tx.Queue(`INSERT INTO effects VALUES ($1, $2)`, req.Client, req.Key)
		return idempotency.Reply{Status: 201, Body: strconv.AppendInt(nil, n[0]+1, 10)}, nil
	}
}

// refuse returns a body that locks a counter and refuses.
func refuse(name string) pgtx.Body {
	return func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		tx.Queue(`UPDATE counters SET n = n + 100 WHERE name = $1`, name) // sent with the read
		if _, err := pgtx.Select[int64](ctx, tx, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`, name); err != nil {
			return idempotency.Reply{}, err
		}
		tx.Queue(`UPDATE counters SET n = n + 100 WHERE name = $1`, name) // never sent
		return pgtx.Refuse(idempotency.Reply{Status: 409, Body: []byte("no")})
	}
}

// want checks the value of counter a, the number of effects, and that no key has two.
func (d *database) want(n int64) {
	d.T.Helper()
	if got := d.Number(`SELECT n FROM counters WHERE name = 'a'`); got != n {
		d.T.Errorf("counter %d, want %d", got, n)
	}
	if got := d.Number(`SELECT count(*) FROM effects`); got != n {
		d.T.Errorf("%d effects, want %d", got, n)
	}
	if twice := d.Number(`SELECT count(*) FROM (SELECT FROM effects GROUP BY client_id, key HAVING count(*) > 1) AS twice`); twice != 0 {
		d.T.Errorf("%d keys took effect twice", twice)
	}
	if free := d.Number(`SELECT count(*) FROM effects e LEFT JOIN idempotency_keys k USING (client_id, key) WHERE k.key IS NULL`); free != 0 {
		d.T.Errorf("%d effects without a key", free)
	}
}

// blocked waits until n sessions wait for a lock.
func (d *database) blocked(n int64) {
	d.T.Helper()
	locktest.Eventually(d.T, "sessions wait for a lock", func() bool { return d.Waiting() >= n })
}
