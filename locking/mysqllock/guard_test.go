// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// guard is Guard, or a variant that is wrong on purpose.
type guard func(context.Context, *sql.Tx, string, locking.Fence) error

// guarded is a server's database, and a guard, to run on.
type guarded struct {
	guard    guard
	settings func(*mysql.Config) // of the connections
	column   string              // the type of the resource; empty: that of the migrations
	unmade   bool                // there are no rows beforehand
}

// open is a locktest.OpenGuards.
func (g guarded) open(t testing.TB) locktest.Guards {
	t.Helper()
	cfg := newDatabase(t, servertest.Env(t, env), "")
	if g.settings != nil {
		g.settings(cfg)
	}
	db := connect(t, cfg, 16)
	if g.column != "" {
		exec(t, db, `ALTER TABLE guards MODIFY resource `+g.column+` NOT NULL`)
	}
	guards := locktest.Guards{
		Make: func(resources ...string) { must(t, MakeGuards(t.Context(), db, resources...)) },
		Fence: func(resource string) locking.Fence {
			return locking.Fence(number(t, db, `SELECT COALESCE(MAX(fence), 0) FROM guards WHERE resource = ?`, resource))
		},
		Begin: func() locktest.Guarded {
			tx := begin(t, db, sql.LevelDefault)
			return locktest.Guarded{
				Guard:    func(resource string, fence locking.Fence) error { return g.guard(t.Context(), tx, resource, fence) },
				Blocked:  blocked(t, db, tx, "guards"),
				Commit:   tx.Commit,
				Rollback: tx.Rollback,
			}
		},
	}
	if g.unmade {
		guards.Make = nil
	}
	return guards
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]func(*mysql.Config){
		"defaults":        nil,
		"clientFoundRows": func(cfg *mysql.Config) { cfg.ClientFoundRows, cfg.InterpolateParams = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.RunGuards(t, guarded{guard: Guard, settings: settings}.open)
		})
	}
}

// in makes a guard of one statement, with the parameters fence, resource and fence.
func in(statement string) guard {
	return func(ctx context.Context, tx *sql.Tx, resource string, fence locking.Fence) error {
		result, err := tx.ExecContext(ctx, statement, int64(fence), resource, int64(fence))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return locking.ErrStale
	}
}

// comparesInGo reads the fence without a lock.
func comparesInGo(ctx context.Context, tx *sql.Tx, resource string, fence locking.Fence) error {
	var seen locking.Fence
	err := tx.QueryRowContext(ctx, `SELECT fence FROM guards WHERE resource = ?`, resource).Scan(&seen)
	if err == nil && seen > fence {
		err = locking.ErrStale
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE guards SET fence = ?, passed = passed + 1 WHERE resource = ?`, int64(fence), resource)
	}
	return err
}

// upserts adds the row if it is missing.
func upserts(ctx context.Context, tx *sql.Tx, resource string, fence locking.Fence) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO guards (resource) VALUES (?) ON DUPLICATE KEY UPDATE passed = passed`, resource)
	if err == nil {
		err = Guard(ctx, tx, resource, fence)
	}
	return err
}

func TestGuard_NoticesWrongVariants(t *testing.T) {
	t.Parallel()
	order, race := "Guard/RefusesTheOldAndAcceptsThePresentAndTheNext", "Guard/WaitsForTheOpenTransaction/NewerThenEqualToTheOld"
	for name, m := range map[string]struct {
		guarded
		caught string
	}{
		"no counter":     {guarded{guard: in(`UPDATE guards SET fence = ? WHERE resource = ? AND fence <= ?`)}, order},
		"equal refused":  {guarded{guard: in(`UPDATE guards SET fence = ? WHERE resource = ? AND fence < ?`)}, order},
		"no comparison":  {guarded{guard: in(`UPDATE guards SET fence = ? WHERE resource = ? AND 0 <> ?`)}, order},
		"compares in Go": {guarded{guard: comparesInGo}, race},
		"names with a collation": {
			guarded{guard: Guard, column: "VARCHAR(512) CHARACTER SET utf8mb4"},
			"Guard/NeverConfusesResources",
		},
		"adds the row": {guarded{guard: upserts, unmade: true}, "Guard/AnyInterleavingCommitsInOrderOfFences"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.WantFailingGuards(t, m.open, m.caught)
		})
	}
}

func TestGuard_RefusesWhatGuardsNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	tx := begin(t, db, sql.LevelDefault)
	if err := Guard(t.Context(), tx, "a", 1); !errors.Is(err, ErrNoGuard) || errors.Is(err, locking.ErrStale) {
		t.Errorf("no row: %v, want ErrNoGuard", err)
	}
	if err := Guard(t.Context(), tx, "a", 0); !errors.Is(err, locking.ErrUnfenced) {
		t.Errorf("fence 0: %v, want ErrUnfenced", err)
	}
	must(t, tx.Rollback())
	must(t, MakeGuards(t.Context(), db, "a"))
	tx = begin(t, db, sql.LevelDefault)
	must(t, Guard(t.Context(), tx, "a", 7))
	must(t, tx.Commit())
	must(t, MakeGuards(t.Context(), db, "a", "b")) // changes nothing
	if n := number(t, db, `SELECT SUM(fence) FROM guards`); n != 7 {
		t.Errorf("the fences are %d together, want 7", n)
	}
	if err := MakeGuards(t.Context(), db, "a\x00"); !errors.Is(err, locking.ErrKey) {
		t.Errorf("%v, want ErrKey", err)
	}
}
