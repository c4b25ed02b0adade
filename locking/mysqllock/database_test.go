// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"shop/locking/locktest/faulty"
	"shop/locking/servertest"
)

// newDB makes a pool on a new database of the shared server.
func newDB(t testing.TB) *sql.DB {
	t.Helper()
	return connect(t, newDatabase(t, servertest.Env(t, env), ""), 16)
}

// newDatabase makes a database, migrates it, at first with another migration of the locks if there is one, and
// returns the configuration of its connections.
func newDatabase(t testing.TB, dsn, migration string) *mysql.Config {
	t.Helper()
	server := parse(t, dsn)
	database := server.Clone()
	database.DBName = "t_" + strings.ToLower(rand.Text())
	on := func(statement string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // t.Context ends before Cleanup
		defer cancel()
		db := open(t, server)
		defer db.Close()
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	on("CREATE DATABASE " + database.DBName)
	t.Cleanup(func() { on("DROP DATABASE " + database.DBName) })
	db := connect(t, database, 1)
	must(t, run(t.Context(), db, migration))
	must(t, Migrate(t.Context(), db)) // it keeps what there is
	return database
}

// edited returns the migration of the locks, and the statements of one free key, with pairs of text replaced.
func edited(t testing.TB, edits ...string) (migration, take, free string) {
	t.Helper()
	text, err := Migrations.ReadFile("migrations/00002_locks.sql")
	must(t, err)
	parts := strings.Split(faulty.Edited(t, string(text)+"\x00"+takeOne+"\x00"+freeOne, edits...), "\x00")
	return parts[0], parts[1], parts[2]
}

func open(t testing.TB, cfg *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(cfg)
	must(t, err)
	return sql.OpenDB(connector)
}

// connect makes a pool that is closed when the test ends.
func connect(t testing.TB, cfg *mysql.Config, conns int) *sql.DB {
	t.Helper()
	db := open(t, cfg)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// code returns the server's number of an error, or 0.
func code(err error) uint16 {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}

// querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func exec(t testing.TB, on querier, statement string, args ...any) {
	t.Helper()
	_, err := on.ExecContext(t.Context(), statement, args...)
	must(t, err)
}

func number(t testing.TB, on querier, query string, args ...any) (n int64) {
	t.Helper()
	must(t, on.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

func mariaDB(t testing.TB, on querier) bool {
	t.Helper()
	return number(t, on, `SELECT VERSION() LIKE '%MariaDB%'`) == 1
}

// begin opens a transaction that is rolled back at the end of the test, if not before.
func begin(t testing.TB, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// blocked returns a function that reports whether a statement of tx with this text is under way since three
// calls: it waits for a lock.
func blocked(t testing.TB, db *sql.DB, tx *sql.Tx, text string) func() bool {
	t.Helper()
	id, calls := number(t, tx, `SELECT CONNECTION_ID()`), 0
	return func() bool {
		calls++
		if number(t, db, `
			SELECT COUNT(*) FROM information_schema.PROCESSLIST
			WHERE ID = ? AND COMMAND IN ('Query', 'Execute') AND INFO LIKE ?`, id, "%"+text+"%") == 0 {
			calls = 0
		}
		return calls >= 3
	}
}

func TestMigrate_MayRunConcurrentlyAndRepeatedly(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	exec(t, db, `DROP TABLE guards, locks`)
	exec(t, db, `DROP PROCEDURE locks_acquire`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := number(t, db, `SELECT COUNT(*) FROM guards, locks`); n != 0 {
		t.Errorf("%d rows in new tables", n)
	}
}
