// SPDX-License-Identifier: MIT

package migrate_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/migrate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The gate stops the first Up within the migration until the others request the lock.
func TestUp_ConcurrentCallsRunEachFileOnce(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(`CREATE TABLE gate (); CREATE TABLE ran (file int)`)
	open := d.Hold(`LOCK TABLE gate`)
	files := fstest.MapFS{"migrations/00001_ran.sql": {Data: []byte("-- +goose Up\nLOCK TABLE gate;\nINSERT INTO ran VALUES (1);")}}
	var prepared atomic.Int32
	up := func() {
		err := migrate.Up(t.Context(), d.URL+"&application_name="+t.Name(), files, "versions",
			func(context.Context, *pgx.Conn) error { prepared.Add(1); return nil })
		if err != nil {
			t.Error(err)
		}
	}
	const replicas = 3
	var wg sync.WaitGroup
	for range replicas {
		wg.Go(up)
	}
	locktest.Eventually(t, "one waits at the gate, and the others request the lock", func() bool {
		return d.Waiting() == 1 && replicas-1 == d.Number(`
			SELECT count(*) FROM pg_stat_activity
			WHERE application_name = $1 AND query LIKE '%pg_try_advisory_lock%'`, t.Name())
	})
	open()
	wg.Wait()
	up() // once more does nothing
	if n := d.Number(`SELECT count(*) FROM ran`); n != 1 {
		t.Errorf("the file was run %d times, want once", n)
	}
	if n := prepared.Load(); n != replicas+1 {
		t.Errorf("first was run %d times, want %d", n, replicas+1)
	}
}

func TestUp_WithoutASchemaIsAnError(t *testing.T) {
	t.Parallel()
	nowhere := strings.Replace(pgtest.Schema(t), "search_path=", "search_path=nowhere_", 1)
	err := migrate.Up(t.Context(), nowhere, fstest.MapFS{}, "versions")
	if err == nil || !strings.Contains(err.Error(), "no schema") {
		t.Errorf("%v, want an error about the schema", err)
	}
}

func TestUp_ErrorOfAURLHoldsNoCredential(t *testing.T) {
	t.Parallel()
	err := migrate.Up(t.Context(), "postgres://me:hunter2/shop", fstest.MapFS{}, "versions")
	if !errors.Is(err, pgtx.ErrURL) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, want ErrURL", err)
	}
}
