// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// repository is code that knows nothing of this package.
func repository(ctx context.Context, tx pgx.Tx, name string) (n int64, err error) {
	if err = tx.QueryRow(ctx, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`, name).Scan(&n); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `UPDATE counters SET n = $2 WHERE name = $1`, name, n+1)
	return n + 1, err
}

// A body that gives its transaction to a repository has one effect for a key, and is repeated after a lost race.
func TestPgx_ARepositoryHasOneEffect(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"read committed": "", "serializable": pgtx.BeginSerializable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, nil)
			request, done := newRequest(), make(chan error)
			for range 8 {
				go func() {
					_, err := d.Run(t.Context(), &pgtx.Op{Request: newRequest(), Begin: begin}, throughRepository)
					done <- err
				}()
			}
			for range 2 {
				if _, err := d.Run(t.Context(), &pgtx.Op{Request: request, Begin: begin}, throughRepository); err != nil {
					t.Error(err)
				}
			}
			for range 8 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			var n int64
			if err := d.Pool.QueryRow(t.Context(), `SELECT n FROM counters WHERE name = 'a'`).Scan(&n); err != nil || n != 9 {
				t.Errorf("%d effects, %v, want 9 for 9 keys", n, err)
			}
		})
	}
}

func throughRepository(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
	tx.Queue(`SELECT 1`) // is sent before
	conn, err := tx.Pgx(ctx)
	if err == nil {
		_, err = repository(ctx, conn, "a")
	}
	return idempotency.Reply{Status: 201}, err
}

// Nested transactions are savepoints, and the transaction itself is ended by Run alone.
func TestPgx_SavepointsAndTheEnd(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	failed := errors.New("undo this")
	_, err := d.Do(t.Context(), newRequest(), func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		conn, err := tx.Pgx(ctx)
		if err != nil {
			return idempotency.Reply{}, err
		}
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { _, err := repository(ctx, tx, "a"); return err }); err != nil {
			t.Error(err)
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := repository(ctx, tx, "a")
			return errors.Join(err, failed)
		})
		if !errors.Is(err, failed) {
			t.Error(err)
		}
		for what, err := range map[string]error{"commit": conn.Commit(ctx), "rollback": conn.Rollback(ctx)} {
			if !errors.Is(err, pgtx.ErrOwned) {
				t.Errorf("%s: got %v, want ErrOwned", what, err)
			}
		}
		return idempotency.Reply{Status: 201}, nil
	})
	var n int64
	if err := errors.Join(err, d.Pool.QueryRow(t.Context(), `SELECT n FROM counters WHERE name = 'a'`).Scan(&n)); err != nil || n != 1 {
		t.Errorf("%d, %v, want 1: what followed the second savepoint is undone", n, err)
	}
}

// A body that goes on after a statement has failed commits nothing.
func TestPgx_AFailedStatementThatIsIgnoredCommitsNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	_, err := d.Do(t.Context(), newRequest(), func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		conn, err := tx.Pgx(ctx)
		if err == nil {
			_, err = repository(ctx, conn, "a")
		}
		if err == nil {
			_, _ = conn.Exec(ctx, `SELECT 1 / 0`)
		}
		return idempotency.Reply{Status: 201}, err
	})
	var n int64
	if scan := d.Pool.QueryRow(t.Context(), `SELECT n FROM counters WHERE name = 'a'`).Scan(&n); err == nil || scan != nil || n != 0 {
		t.Errorf("%v, %d, %v: want an error, and no effect", err, n, scan)
	}
}
