package mysqllock

import (
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// One acquisition and one release, without contention. SELECT 1 is the round trip; the commits
// of Store wait for the disk on a server that flushes, the named locks do not.
func BenchmarkUncontended(b *testing.B) {
	db := newDB(b)
	store, err := New(db, time.Minute)
	must(b, err)
	b.Cleanup(store.Close)
	session := NewSessions(db, b.Name())
	b.Cleanup(session.Close)
	for name, once := range map[string]func() error{
		"SELECT-1":     func() error { _, err := db.ExecContext(b.Context(), `SELECT 1`); return err },
		"Store":        locktest.HoldOnce(b, store),
		"SessionStore": locktest.HoldOnce(b, session),
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
	cfg := newDatabase(b, locktest.Env(b, env))
	var tables, sessions []locking.Store
	for range 2 {
		store, err := New(connect(b, cfg, 16), time.Minute)
		must(b, err)
		b.Cleanup(store.Close)
		session := NewSessions(connect(b, cfg, 20), b.Name())
		b.Cleanup(session.Close)
		tables, sessions = append(tables, store), append(sessions, session)
	}
	for name, stores := range map[string][]locking.Store{"Store": tables, "SessionStore": sessions} {
		b.Run(name, func(b *testing.B) { locktest.BenchmarkHandOff(b, stores...) })
	}
}
