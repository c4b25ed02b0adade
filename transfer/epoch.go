// SPDX-License-Identifier: MIT

package transfer

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// Epochs counts the accounts by the epoch of their fence; "" stands for none yet. More than
// one epoch besides "" means that a lock service was replaced without a NewEpoch.
func Epochs(ctx context.Context, pool *pgxpool.Pool) (map[string]int64, error) {
	accounts := map[string]int64{}
	for after := uuid.Nil; ; {
		page, last, err := readEpochs(ctx, pool, after)
		if err != nil {
			return nil, fmt.Errorf("transfer: fence epochs: %w", err)
		}
		if len(page) == 0 {
			return accounts, nil
		}
		for epoch, n := range page {
			accounts[epoch] += n
		}
		after = last
	}
}

// epochPage is how many accounts are read at a time, and at most locked.
const epochPage = 1000

// readEpochs counts the next accounts by their epoch, without locks, and returns the last of them.
func readEpochs(ctx context.Context, pool *pgxpool.Pool, after uuid.UUID) (accounts map[string]int64, last uuid.UUID, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server enforces no statement_timeout
	defer cancel()
	// The text of a uuid has its order, byte by byte, and PostgreSQL before 18 has no max(uuid).
	rows, _ := pool.Query(ctx, `
		SELECT fence_epoch, count(*), max(id::text COLLATE "C")::uuid
		FROM (
			SELECT id, fence_epoch
			FROM accounts
			WHERE id > $1
			ORDER BY id
			LIMIT $2) AS page
		GROUP BY fence_epoch`, after, epochPage)
	var (
		epoch string
		n     int64
		id    uuid.UUID
	)
	accounts, last = map[string]int64{}, after
	_, err = pgx.ForEachRow(rows, []any{&epoch, &n, &id}, func() error {
		accounts[epoch] = n
		if bytes.Compare(id[:], last[:]) > 0 {
			last = id
		}
		return nil
	})
	return accounts, last, err
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
		n, err := walk(ctx, pool, was, now)
		accounts += n
		if err != nil {
			return accounts, fmt.Errorf("transfer: new fence epoch: %w", err)
		}
		if n == 0 { // a process of the old epoch may open an account behind the walk
			return accounts, nil
		}
	}
}

// walk moves the accounts of epoch was, in pages of all accounts by id: a page of the accounts that are left would read
// all that were moved before it.
func walk(ctx context.Context, pool *pgxpool.Pool, was, now string) (moved int64, err error) {
	for after := uuid.Nil; ; {
		page, last, err := readEpochs(ctx, pool, after)
		if len(page) == 0 || err != nil {
			return moved, err
		}
		if page[was] > 0 {
			n, err := handOver(ctx, pool, was, now, after, last)
			if moved += n; err != nil {
				return moved, err
			}
		}
		after = last
	}
}

// handOver moves the accounts of a page, after after and up to last, in one transaction.
func handOver(ctx context.Context, pool *pgxpool.Pool, was, now string, after, last uuid.UUID) (n int64, err error) {
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
				WHERE id > $3 AND id <= $4
				AND fence_epoch = $1
				ORDER BY id
				FOR UPDATE)`, was, now, after, last)
		if n = tag.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO fence_epochs (was, epoch, accounts) VALUES ($1, $2, $3)`, was, now, n)
		return err
	})
	return n, err
}
