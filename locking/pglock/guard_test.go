// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/locktest"
)

// guards is a locktest.OpenGuards with a guard that is correct, or wrong on purpose.
func guards(guard func(context.Context, Tx, string, locking.Fence) error) locktest.OpenGuards {
	return func(t testing.TB) locktest.Guards {
		pool := newPool(t)
		return locktest.Guards{
			Fence: func(resource string) locking.Fence {
				return locking.Fence(number(t, pool, `SELECT COALESCE(max(fence), 0) FROM guards WHERE resource = $1`, resource))
			},
			Begin: func() locktest.Guarded {
				tx := begin(t, pool, pgx.ReadCommitted)
				return locktest.Guarded{
					Guard: func(resource string, fence locking.Fence) error {
						return guard(t.Context(), tx, resource, fence)
					},
					Blocked:  func() bool { return blocked(t, pool, tx) },
					Commit:   func() error { return tx.Commit(t.Context()) },
					Rollback: func() error { return tx.Rollback(t.Context()) },
				}
			},
		}
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	locktest.RunGuards(t, guards(Guard))
}

// guardsBy makes a guard of another statement than Guard's.
func guardsBy(sql string) locktest.OpenGuards {
	return guards(func(ctx context.Context, tx Tx, resource string, fence locking.Fence) error {
		tag, err := tx.Exec(ctx, sql, resource, int64(fence))
		if err == nil && tag.RowsAffected() == 0 {
			err = locking.ErrStale
		}
		return err
	})
}

func TestGuard_NoticesWrongStatements(t *testing.T) {
	t.Parallel()
	insert := `INSERT INTO guards AS g (resource, fence) VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET fence = EXCLUDED.fence `
	locktest.WantFailingGuards(t, guardsBy(insert), "Guard/RefusesTheOldAndAcceptsThePresentAndTheNext")
	locktest.WantFailingGuards(t, guardsBy(insert+`WHERE g.fence < EXCLUDED.fence`), "Guard/RefusesTheOldAndAcceptsThePresentAndTheNext")
	locktest.WantFailingGuards(t, guardsBy(`SELECT WHERE NOT EXISTS (SELECT FROM guards WHERE resource = $1 AND fence > $2)`), // compares, and locks nothing
		"Guard/WaitsForTheOpenTransaction/NewerThenEqualToTheOld")
}

// write guards resource in a transaction and commits it.
func write(t *testing.T, pool *pgxpool.Pool, resource string, fence locking.Fence) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return Guard(t.Context(), tx, resource, fence)
	})
}

// The loser's snapshot is older than the winner's commit, so its guard fails with 40001
// before any fence is compared. When it runs again, with a new snapshot, it is ErrStale.
func TestGuard_UnderASnapshotALostRaceIs40001First(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for name, fences := range map[string][2]locking.Fence{"stale": {6, 5}, "newer": {5, 6}} {
			t.Run(string(level)+"/"+name, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t)
				if err := write(t, pool, "a", 1); err != nil {
					t.Fatal(err)
				}
				loser := begin(t, pool, level)
				if _, err := loser.Exec(t.Context(), `SELECT FROM guards`); err != nil { // takes the snapshot
					t.Fatal(err)
				}
				if err := write(t, pool, "a", fences[0]); err != nil {
					t.Fatal(err)
				}
				err := Guard(t.Context(), loser, "a", fences[1])
				var pg *pgconn.PgError
				if !errors.As(err, &pg) || pg.Code != "40001" || errors.Is(err, locking.ErrStale) {
					t.Errorf("%v, want 40001 and no ErrStale yet", err)
				}
				_ = loser.Rollback(t.Context())
				again := begin(t, pool, level)
				err = Guard(t.Context(), again, "a", fences[1])
				if stale := errors.Is(err, locking.ErrStale); stale != (fences[1] < fences[0]) {
					t.Errorf("again: %v", err)
				}
			})
		}
	}
}

func TestGuard_RefusesWhatGuardsNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	if err := write(t, pool, "a", 0); !errors.Is(err, locking.ErrUnfenced) {
		t.Errorf("fence 0: %v, want ErrUnfenced", err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := Guard(t.Context(), conn, "a", 1); !errors.Is(err, locking.ErrUnfenced) {
		t.Errorf("in autocommit: %v, want ErrUnfenced", err)
	}
	if n := number(t, pool, `SELECT count(*) FROM guards`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}
