package transfer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// Epochs counts the accounts by the epoch of their last fence; "" is none yet.
// More than one besides "" means that a lock service was replaced, and no NewEpoch followed.
func Epochs(ctx context.Context, pool *pgxpool.Pool) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server has no statement_timeout
	defer cancel()
	rows, _ := pool.Query(ctx, `SELECT fence_epoch, count(*) FROM accounts GROUP BY fence_epoch`)
	var (
		epoch    string
		n        int64
		accounts = map[string]int64{}
	)
	_, err := pgx.ForEachRow(rows, []any{&epoch, &n}, func() error {
		accounts[epoch] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: fence epochs: %w", err)
	}
	return accounts, nil
}

// NewEpoch hands the accounts fenced in epoch was over to epoch now, whose
// fences count from the beginning again, and returns how many there were.
//
// An etcd that was wiped, or restored from a backup, hands out numbers that the
// accounts have seen long ago. They would refuse it for ever, and rightly: a row
// cannot tell a new counter from an old holder. An operator who knows that the
// old etcd is gone can. That is what a call of NewEpoch says, and why nothing in
// this package calls it.
//
// It may run beside transfers: an account changes hands under its row lock, and
// from then on holders of the old epoch are refused, however late they come.
// No holder passes the guard that did not before, in either order of the two.
func NewEpoch(ctx context.Context, pool *pgxpool.Pool, was, now string) (accounts int64, err error) {
	if now == "" || was == now {
		return 0, fmt.Errorf("%w: a new epoch needs a name of its own, not %q after %q", ErrInvalid, now, was)
	}
	for {
		n, err := handOver(ctx, pool, was, now)
		if err != nil {
			return accounts, fmt.Errorf("transfer: new fence epoch: %w", err)
		}
		if n == 0 {
			return accounts, nil
		}
		accounts += n
	}
}

// handOver hands some accounts over, in one transaction.
func handOver(ctx context.Context, pool *pgxpool.Pool, was, now string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server has no statement_timeout
	defer cancel()
	// In small bites, each in id order, like every transaction that locks two accounts.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE accounts
			SET fence = 0, fence_epoch = $2
			WHERE id IN (
				SELECT id
				FROM accounts
				WHERE fence_epoch = $1
				ORDER BY id
				LIMIT 500
				FOR UPDATE)`, was, now)
		if n = tag.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO fence_epochs (was, epoch, accounts) VALUES ($1, $2, $3)`, was, now, n)
		return err
	})
	return n, err
}
