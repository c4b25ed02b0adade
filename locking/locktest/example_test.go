// SPDX-License-Identifier: MIT

package locktest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// table is a small locking.Store, as a user may write one: a row for each lock, on the clock of PostgreSQL.
type table struct {
	*pgxpool.Pool
	name string
	ttl  time.Duration
}

func (s *table) TryAcquire(ctx context.Context, keys ...string) (l locking.Lease, err error) {
	if l.Keys, err = locking.SortedKeys(keys); err != nil {
		return l, err
	}
	if len(l.Keys) > 1 {
		return l, locking.ErrSeveralKeys
	}
	l.Owner, l.Until = rand.Text(), time.Now().Add(s.ttl) // before the request
	return l, s.one(ctx, locking.ErrBusy, `INSERT INTO TABLE AS old VALUES ($1, $2, clock_timestamp() + $3::interval)
		ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner, until = EXCLUDED.until WHERE old.until <= clock_timestamp()`, l.Keys[0], l.Owner, s.ttl)
}

func (s *table) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	if len(l.Keys) == 0 {
		return l, locking.ErrLost
	}
	until := time.Now().Add(s.ttl)
	err := s.one(ctx, locking.ErrLost, `UPDATE TABLE SET until = clock_timestamp() + $3::interval
		WHERE key = $1 AND owner = $2 AND until > clock_timestamp()`, l.Keys[0], l.Owner, s.ttl)
	if err == nil {
		l.Until = until
	}
	return l, err
}

func (s *table) Release(ctx context.Context, l locking.Lease) error {
	if len(l.Keys) == 0 {
		return locking.ErrLost
	}
	return s.one(ctx, locking.ErrLost, `DELETE FROM TABLE WHERE key = $1 AND owner = $2 AND until > clock_timestamp()`, l.Keys[0], l.Owner)
}

// one returns none unless the statement has changed a row.
func (s *table) one(ctx context.Context, none error, sql string, args ...any) error {
	tag, err := s.Exec(ctx, strings.ReplaceAll(sql, "TABLE", s.name), args...)
	if err == nil && tag.RowsAffected() == 0 {
		return none
	}
	return err
}

// The contract runs over a store of 45 lines.
func TestRun_AStoreOfAnyone(t *testing.T) {
	locktest.Run(t, func(t testing.TB) locktest.Backend {
		pool, err := pgxpool.New(context.Background(), servertest.Env(t, "SHOP_POSTGRES_URL"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		name := "locks_" + strings.ToLower(rand.Text())
		if _, err := pool.Exec(context.Background(), `CREATE UNLOGGED TABLE `+name+` (key text PRIMARY KEY, owner text, until timestamptz)`); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = pool.Exec(context.Background(), `DROP TABLE `+name) })
		return locktest.Backend{Open: func(ttl time.Duration) (locking.Store, error) {
			if ttl < time.Millisecond || ttl%time.Millisecond != 0 {
				return nil, fmt.Errorf("%w: %v", locking.ErrTTL, ttl)
			}
			return &table{pool, name, ttl}, nil
		}}
	}, locktest.Promises{Expires: true, MinTTL: time.Millisecond})
}
