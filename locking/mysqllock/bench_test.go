// SPDX-License-Identifier: MIT

package mysqllock

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// One acquisition and one release, without contention. SELECT 1 is the round trip; the commits
// of Store wait for the disk on a server that flushes, the named locks do not.
func BenchmarkUncontended(b *testing.B) {
	db := newDB(b)
	store, err := New(db, time.Minute, Options{})
	must(b, err)
	b.Cleanup(store.Close)
	session := made(NewSessions(db, Options{Prefix: b.Name()}))
	b.Cleanup(session.Close)
	must(b, MakeGuards(b.Context(), db, "k"))
	transaction := func(statement func(*sql.Tx) error) func() error {
		return func() error {
			tx, err := db.BeginTx(b.Context(), nil)
			if err != nil {
				return err
			}
			if err := statement(tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
	}
	for name, once := range map[string]func() error{
		"SELECT-1":     func() error { _, err := db.ExecContext(b.Context(), `SELECT 1`); return err },
		"Store":        locktest.HoldOnce(b, store),
		"Sessions":     locktest.HoldOnce(b, session),
		"BEGIN-COMMIT": transaction(func(*sql.Tx) error { return nil }),
		"Guard":        transaction(func(tx *sql.Tx) error { return Guard(b.Context(), tx, "k", 1) }),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				must(b, once())
			}
		})
	}
}

// Goroutines of two processes want one key: the time from one grant to the next.
func BenchmarkHandOff(b *testing.B) {
	cfg := newDatabase(b, servertest.Env(b, env), "")
	var tables, sessions []locking.Store
	for range 2 {
		store, err := New(connect(b, cfg, 16), time.Minute, Options{})
		must(b, err)
		b.Cleanup(store.Close)
		session := made(NewSessions(connect(b, cfg, 20), Options{Prefix: b.Name()}))
		b.Cleanup(session.Close)
		tables, sessions = append(tables, store), append(sessions, session)
	}
	for name, stores := range map[string][]locking.Store{"Store": tables, "Sessions": sessions} {
		b.Run(name, func(b *testing.B) { locktest.BenchmarkHandOff(b, stores...) })
	}
}
