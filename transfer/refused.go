// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// StaleError reports that the guard refused a fence that is older than one that the account
// has seen. It matches locking.ErrStale.
type StaleError struct {
	Account uuid.UUID
	Fence   locking.Fence // of the holder
	Seen    locking.Fence // of the account
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("transfer: fence %d is stale, account %s has seen %d", e.Fence, e.Account, e.Seen)
}
func (e *StaleError) Is(target error) bool { return target == locking.ErrStale }

// EpochError reports that the guard refused to compare fences of two epochs. Either etcd was
// wiped or restored, and the database was not: then an operator calls NewEpoch. Or the
// process is connected to the wrong etcd. It matches ErrEpoch.
type EpochError struct {
	Account uuid.UUID
	Epoch   string // of the holder
	Seen    string // of the account
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("transfer: account %s is fenced in epoch %q, this lock service is in %q: if it was wiped or restored, start a new fence epoch", e.Account, e.Seen, e.Epoch)
}
func (e *EpochError) Is(target error) bool { return target == ErrEpoch }

// explainMiss finds out why an UPDATE matched no row: the fence is old, it is of another
// epoch, or there is no such account. In the last case it returns missed.
func (a *attempt) explainMiss(ctx context.Context, missed error) error {
	type row struct {
		ID    uuid.UUID
		Fence int64
		Epoch string
	}
	accounts, err := pgtx.Select[row](ctx, a.Tx, `
		SELECT id, fence, fence_epoch
		FROM accounts
		WHERE id = ANY($1)
		ORDER BY id`, a.pair())
	if err != nil {
		return err
	}
	for _, r := range accounts {
		switch {
		case r.Epoch != "" && r.Epoch != a.epoch:
			return &EpochError{Account: r.ID, Epoch: a.epoch, Seen: r.Epoch}
		case locking.Fence(r.Fence) > a.fence:
			a.s.cfg.Count(FenceRefused, a.s.cfg.Strategy)
			return &StaleError{Account: r.ID, Fence: a.fence, Seen: locking.Fence(r.Fence)}
		}
	}
	if len(accounts) < 2 {
		return missed
	}
	return pgtx.ErrRetry // NewEpoch ran between the miss and this read
}
