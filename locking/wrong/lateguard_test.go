// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"errors"
	"testing"

	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
)

// newAccount makes an account with a balance of 100.
func newAccount(t *testing.T) *pgtest.Database {
	t.Helper()
	db := pgtest.New(t)
	db.Exec(`CREATE TABLE account AS SELECT 100::bigint AS balance, 0::bigint AS fence`)
	return db
}

// B, the new holder, has read when A, the old one, reads and writes. Both guards pass, since
// B's fence is newer, and B overwrites A's update.
func TestAddGuardedLate_LosesAnUpdate(t *testing.T) {
	t.Parallel()
	db := newAccount(t)
	a := func() {
		if err := AddGuardedLate(t.Context(), db.Pool, 5, 10, func() {}); err != nil {
			t.Errorf("A: %v", err)
		}
	}
	if err := AddGuardedLate(t.Context(), db.Pool, 6, 1, a); err != nil {
		t.Errorf("B: %v", err)
	}
	if n := db.Number(`SELECT balance FROM account`); n != 101 {
		t.Errorf("the balance is %d, want 101: A's 10 must be lost, or the test shows nothing", n)
	}
}

// The control: the same script, with the guard before the read. A is refused, and knows it.
func TestAddGuardedFirst_RefusesTheOldHolder(t *testing.T) {
	t.Parallel()
	db := newAccount(t)
	a := func() {
		if err := addGuardedFirst(t.Context(), db.Pool, 5, 10, func() {}); !errors.Is(err, locking.ErrStale) {
			t.Errorf("A: got %v, want ErrStale", err)
		}
	}
	if err := addGuardedFirst(t.Context(), db.Pool, 6, 1, a); err != nil {
		t.Errorf("B: %v", err)
	}
	if n := db.Number(`SELECT balance FROM account`); n != 101 {
		t.Errorf("the balance is %d, want 101", n)
	}
}

func addGuardedFirst(ctx context.Context, db DB, fence locking.Fence, n int64, work func()) error {
	tag, err := db.Exec(ctx, `UPDATE account SET fence = $1 WHERE fence <= $1`, int64(fence))
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return locking.ErrStale
	}
	return AddGuardedLate(ctx, db, fence, n, work)
}
