// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/locktest"
)

// One acquisition and one release, without contention. SELECT 1 is the round trip, BEGIN-COMMIT are two; the
// commits of what has written wait for the disk, the advisory locks do not.
func BenchmarkUncontended(b *testing.B) {
	pool := newPool(b)
	store, err := New(pool, time.Minute, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(store.Close)
	session := made(NewSessions(pool, Options{Prefix: b.Name()}))
	b.Cleanup(session.Close)
	must(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error { return MakeRow(b.Context(), tx, "k") }))
	inTx := func(lock func(ctx context.Context, tx pgx.Tx) error) func() error {
		return func() error {
			return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error { return lock(b.Context(), tx) })
		}
	}
	for name, once := range map[string]func() error{
		"SELECT-1":     func() error { _, err := pool.Exec(b.Context(), `SELECT 1`); return err },
		"Store":        locktest.HoldOnce(b, store),
		"Sessions":     locktest.HoldOnce(b, session),
		"BEGIN-COMMIT": inTx(func(context.Context, pgx.Tx) error { return nil }),
		"XactLock":     inTx(func(ctx context.Context, tx pgx.Tx) error { return XactLock(ctx, tx, b.Name()) }),
		"XactLockRow":  inTx(func(ctx context.Context, tx pgx.Tx) error { return XactLockRow(ctx, tx, "locks", 7) }),
		"XactLockWithin": inTx(func(ctx context.Context, tx pgx.Tx) error {
			return XactLockWithin(ctx, tx, b.Name(), time.Second)
		}),
		"TryXactLease": inTx(func(ctx context.Context, tx pgx.Tx) error {
			_, err := TryXactLease(ctx, tx, "leased", "me", time.Minute)
			return err
		}),
		"LockRow": inTx(func(ctx context.Context, tx pgx.Tx) error { return LockRow(ctx, tx, "k") }),
		"MakeRow-LockRow": inTx(func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(MakeRow(ctx, tx, "k"), LockRow(ctx, tx, "k"))
		}),
		"Guard": inTx(func(ctx context.Context, tx pgx.Tx) error { return Guard(ctx, tx, "k", 1) }),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := once(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Goroutines of two processes want one key: the time from one grant to the next.
func BenchmarkHandOff(b *testing.B) {
	pool := newPool(b)
	var tables, sessions []locking.Store
	for range 2 {
		store, err := New(pool, time.Minute, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(store.Close)
		session := made(NewSessions(connect(b, pool.Config().ConnString(), 20), Options{Prefix: b.Name()}))
		b.Cleanup(session.Close)
		tables, sessions = append(tables, store), append(sessions, session)
	}
	for name, stores := range map[string][]locking.Store{"Store": tables, "Sessions": sessions} {
		b.Run(name, func(b *testing.B) { locktest.BenchmarkHandOff(b, stores...) })
	}
}
