// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/driver"
)

// TTLMin is the shortest TTL of a Store: the server has to flush several commits within
// it. A TTL is a whole number of milliseconds.
const TTLMin = 100 * time.Millisecond

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins the name of each key in the server; empty: none. Stores exclude each other only if they have the same
	// Prefix. End it with a character that no key begins with.
	Prefix string
}

// New makes a Store whose leases last ttl, in the table locks of this package's migrations. Stores exclude each other only if the
// search_path of their pools leads to the same table. A pool may connect through a pooler, with
// default_query_exec_mode=exec if the pooler cannot track prepared statements. A request
// occupies a connection for one round trip, so two or three connections serve many leases. The first wait takes one out of the
// pool, for LISTEN. The caller owns the pool, and closes it after the Store.
//
// In a process waiters are granted a key in the order of arrival, among the processes in any order. The release of a key
// wakes the first waiter of each process with NOTIFY. A notification is only
// a hint: waiters also ask again every quarter of a second, which finds expired leases too.
func New(pool *pgxpool.Pool, ttl time.Duration, o Options) (*driver.Store, error) {
	if err := locking.CheckClient(pool); err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	settings := settings(ttl)
	settings.Prefix = o.Prefix
	return driver.New(newTable(pool, ttl), settings)
}

// settings are those of a Store.
func settings(ttl time.Duration) driver.Options {
	const poll = 250 * time.Millisecond
	return driver.Options{
		Name: "pglock", TTL: ttl, TTLMin: TTLMin, TTLUnit: time.Millisecond, NameMax: locking.KeyMax,
		Pause: locking.Backoff{Base: poll, Max: poll}, Turn: 5 * time.Millisecond, Gap: 2 * time.Millisecond,
	}
}

// table is a driver.Driver.
type table struct {
	pool             *pgxpool.Pool
	ttl              time.Duration
	takeOne, freeOne string
}

func newTable(pool *pgxpool.Pool, ttl time.Duration) *table {
	return &table{pool, ttl, takeOne, freeOne}
}

// A free key that has a row is taken, and its lease released, by one statement, without the cost of a function. Each is a
// transaction of its own. If it returns no row, the functions find out why.
const (
	// If a transaction that has just ended changed the row, PostgreSQL computes the update again from the new row, with a
	// new fence.
	takeOne = `
		UPDATE locks
		SET owner = $2, fence = nextval('locks_fence'), expires = clock_timestamp() + $3::interval, awaited = false
		WHERE key = $1 AND expires <= clock_timestamp()
		RETURNING fence`
	freeOne = `
		UPDATE locks SET owner = '', expires = '-infinity'
		WHERE key = $1 AND owner = $2 AND fence = $3 AND expires > clock_timestamp() AND NOT awaited
		RETURNING (set_config('synchronous_commit', 'off', true) = 'off')::integer`
)

// Take takes all keys for owner, or none. With wait the release of a busy key notifies.
func (p *table) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	var fence int64
	var err error
	if len(keys) == 1 && !wait { // a waiter most often finds a held key
		err = p.call(ctx, &fence, p.takeOne, keys[0], owner, p.ttl)
	}
	if err == nil && fence == 0 {
		err = p.call(ctx, &fence, `SELECT locks_acquire($1, $2, $3, $4)`, keys, owner, p.ttl, wait)
	}
	if err == nil && fence == 0 {
		err = locking.ErrBusy
	}
	return driver.Grant{Fence: locking.Fence(fence)}, err
}

// Keep begins the TTL again.
func (p *table) Keep(ctx context.Context, l locking.Lease) error {
	var held bool
	err := p.call(ctx, &held, `SELECT locks_renew($1, $2, $3, $4)`, l.Keys, l.Owner, int64(l.Fence), p.ttl)
	if err == nil && !held {
		err = locking.ErrLost
	}
	return err
}

// Free frees the keys. It does not wait until the disk, or a standby, has the release: a grant that follows waits for both. A
// server that crashes before may lose the release, and the lease ends by its TTL.
func (p *table) Free(ctx context.Context, l locking.Lease) error {
	var held int
	var err error
	if len(l.Keys) == 1 && l.Fence > 0 {
		err = p.call(ctx, &held, p.freeOne, l.Keys[0], l.Owner, int64(l.Fence))
	}
	if err == nil && held == 0 {
		err = p.call(ctx, &held, `SELECT locks_release($1, $2, $3) FROM set_config('synchronous_commit', 'off', true)`, l.Keys, l.Owner, int64(l.Fence))
	}
	if err == nil && held < len(l.Keys) {
		err = locking.ErrLost
	}
	return err
}

// Listen receives notifications, on a connection that it takes out of the pool.
func (p *table) Listen(ctx context.Context, wake func(key string)) error {
	pooled, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), driver.DefaultLimit(p.ttl))
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, `LISTEN pglock`); err != nil {
		return err
	}
	wake("")
	for {
		released, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		wake(released.Payload)
	}
}

// call sends a statement with one result, which is a transaction of its own. It leaves the result as it is if there is no row.
// Whether it is prepared on its connection is a setting of the pool.
func (p *table) call(ctx context.Context, result any, sql string, args ...any) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return driver.Unsent(err)
	}
	defer conn.Release()
	err = conn.QueryRow(ctx, sql, args...).Scan(result)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return classify(err)
}

// classify returns the error of a request as a driver.Driver must. FATAL ends the
// session, perhaps after the commit. query_canceled is no refusal: the statement may have taken an advisory lock of its session before.
func classify(err error) error {
	const queryCanceled = "57014"
	var answer *pgconn.PgError
	answered := errors.As(err, &answer)
	switch {
	case err == nil:
		return nil
	case answered && answer.SeverityUnlocalized == "ERROR" && answer.Code != queryCanceled:
		return driver.Refused(err)
	case unsent(err):
		return driver.Unsent(err)
	}
	return err
}
