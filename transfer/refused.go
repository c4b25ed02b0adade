package transfer

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// StaleError is the guard's refusal of a fence that is older than one that the
// account has seen. It matches locking.ErrStale.
type StaleError struct {
	Account uuid.UUID
	Fence   locking.Fence // ours
	Seen    locking.Fence // the account's
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("transfer: fence %d is stale, account %s has seen %d", e.Fence, e.Account, e.Seen)
}
func (e *StaleError) Is(target error) bool { return target == locking.ErrStale }

// EpochError is the guard's refusal to compare numbers of two counters: etcd
// was wiped or restored under a database that remembers it, or the process is
// connected to the wrong one. NewEpoch is the operator's answer to the first.
// It matches ErrEpoch.
type EpochError struct {
	Account uuid.UUID
	Epoch   string // ours
	Seen    string // the account's
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("transfer: account %s is fenced in epoch %q, this lock service is in %q: was it wiped or restored? then start a new fence epoch", e.Account, e.Seen, e.Epoch)
}
func (e *EpochError) Is(target error) bool { return target == ErrEpoch }

// explainMiss turns a missing row into the reason for which the guard refused it,
// if it did. An UPDATE that finds no row does not tell: there is no such account,
// the fence is old, or it is of another epoch.
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
	return pgtx.ErrRetry // a new epoch came between the miss and this look
}
