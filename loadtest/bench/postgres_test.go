// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/pglock"
)

// pool is for the locks of one process.
func pool(ctx context.Context) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(os.Getenv("SHOP_POSTGRES_URL"))
	if err != nil {
		return nil, err
	}
	c.MaxConns = 66 // each of 64 waiters of a session lock has a connection, and LISTEN has one
	// A waiter that leaves cancels its statement. By default pgx closes the connection, and all have to connect again. A
	// statement that ends soon is not cancelled: a cancel request that comes late would end the next statement.
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, CancelRequestDelay: retryEvery, DeadlineDelay: time.Second}
	}
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return counted{conn}, err
	}
	p, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	return p, p.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pglock.Migrate(ctx, c.Conn()) })
}

func openSessions(ctx context.Context) (locker, error) {
	p, err := pool(ctx)
	if err != nil {
		return nil, err
	}
	s, err := pglock.NewSessions(p, pglock.Options{Prefix: "bench"})
	return store(s, func() { s.Close(); p.Close() }), err
}

func openAdvisory(ctx context.Context) (locker, error) {
	p, err := pool(ctx)
	if err != nil {
		return nil, err
	}
	return locked{func(ctx context.Context, key string) (func() error, error) {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, pglock.Hash("raw:"+key)); err != nil {
			conn.Release()
			return nil, err
		}
		return func() error {
			defer conn.Release()
			_, err := conn.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, pglock.Hash("raw:"+key))
			return err
		}, nil
	}, p.Close}, nil
}

func openTable(ctx context.Context) (locker, error) {
	p, err := pool(ctx)
	if err != nil {
		return nil, err
	}
	s, err := pglock.New(p, ttl, pglock.Options{})
	if err != nil {
		return nil, err
	}
	return store(s, func() { s.Close(); p.Close() }), nil
}

// openPolledTable is a lock table as it is usually written: one upsert to take, one update to release, and a
// wait between two attempts.
func openPolledTable(ctx context.Context) (locker, error) {
	p, err := pool(ctx)
	if err != nil {
		return nil, err
	}
	_, err = p.Exec(ctx, `CREATE TABLE IF NOT EXISTS peer_locks (key text PRIMARY KEY, owner text, expires timestamptz)`)
	if err != nil {
		return nil, err
	}
	return locked{func(ctx context.Context, key string) (func() error, error) {
		owner := rand.Text()
		for {
			tag, err := p.Exec(ctx, `INSERT INTO peer_locks VALUES ($1, $2, clock_timestamp() + $3)
				ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
				WHERE peer_locks.expires < clock_timestamp()`, key, owner, ttl)
			if err != nil || tag.RowsAffected() == 1 {
				return func() error {
					_, err := p.Exec(context.WithoutCancel(ctx), `UPDATE peer_locks SET expires = '-infinity' WHERE key = $1 AND owner = $2`, key, owner)
					return err
				}, err
			}
			if err := pause(ctx, retryEvery); err != nil {
				return nil, err
			}
		}
	}, p.Close}, nil
}

// sent is the number of requests to PostgreSQL.
var sent atomic.Int64

// counted is a connection to PostgreSQL. The client writes a request at once.
type counted struct{ net.Conn }

func (c counted) Write(b []byte) (int, error) {
	sent.Add(1)
	return c.Conn.Write(b)
}
