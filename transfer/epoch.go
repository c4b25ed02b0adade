package transfer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// Epochs counts the accounts by the epoch of their fence; "" stands for none yet. More than
// one epoch besides "" means that a lock service was replaced without a NewEpoch.
func Epochs(ctx context.Context, pool *pgxpool.Pool) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server enforces no statement_timeout
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

// NewEpoch moves the accounts of epoch was to epoch now, resets their fences to 0, and
// returns the number of these accounts.
//
// An etcd that was wiped, or restored from a backup, grants fences lower than those that
// the accounts have seen. The accounts refuse them for ever, and must: a row cannot
// distinguish a new counter from a late holder. Only an operator knows that the old etcd
// is gone. So nothing in this package calls NewEpoch.
//
// NewEpoch may run while there are transfers. The epoch of an account changes under its row
// lock. Before the change its fence refuses late holders of the old epoch, after it the
// epoch refuses all holders of the old epoch.
func NewEpoch(ctx context.Context, pool *pgxpool.Pool, was, now string) (accounts int64, err error) {
	if now == "" || was == now {
		return 0, fmt.Errorf("%w: the new epoch needs a non-empty name that differs from the old one: %q after %q", ErrInvalid, now, was)
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

// handOver moves up to 500 accounts to epoch now, in one transaction.
func handOver(ctx context.Context, pool *pgxpool.Pool, was, now string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server enforces no statement_timeout
	defer cancel()
	// In id order, like every transaction that locks more than one account.
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
