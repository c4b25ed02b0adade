package transfer

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// record queues everything that a job leaves: the key with the reply, the
// accounts, the transfer, and two entries if money moved. The key goes first: it
// is the one that may have to wait, and the one that may say no. The accounts go
// before what refers to them: its foreign keys lock them too (FOR KEY SHARE), and
// of two locks of one row the stronger is to be taken first.
func (s *Service) record(ctx context.Context, t *tx, j *job, tr Transfer, accounts ...*account) (Reply, error) {
	reply, err := s.encode(tr, nil)
	if err != nil {
		return Reply{}, fmt.Errorf("transfer: encode: %w", err)
	}
	if err := t.storeReply(ctx, j, reply); err != nil {
		return Reply{}, err
	}
	t.save(accounts...)
	if j.change == nil {
		t.exec(`
			INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency,
			                       state, settled, created_at, expires_at, ended_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			tr.ID, tr.Client, j.req.Key, tr.From, tr.To, tr.Amount, tr.Currency,
			tr.State, tr.Settled, tr.CreatedAt, tr.ExpiresAt, tr.EndedAt)
	}
	if tr.Settled > 0 {
		t.enter(tr)
	}
	return reply, nil
}

// save queues the balances that were computed from what was read, in id order.
// All strategies write alike. They differ in what the reading was worth: under a
// row lock or a guard it is still true here, under naive it is the past, and
// this puts the past back. CHECK (balance >= held) is the last guard, and
// does not notice that.
func (t *tx) save(accounts ...*account) {
	accounts = slices.SortedFunc(slices.Values(accounts), func(a, b *account) int { return bytes.Compare(a.id[:], b.id[:]) })
	for _, a := range accounts {
		t.exec(`
			UPDATE accounts
			SET balance = $2, held = $3, version = version + 1
			WHERE id = $1`, a.id, a.balance, a.held)
	}
}

// enter queues both entries, with the fence under which they are written, and
// the version that each account has just got.
func (t *tx) enter(tr Transfer) {
	t.exec(`
		INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_source)
		SELECT $1, a.id, e.delta, a.version, $4, $5
		FROM unnest($2::uuid[], $3::bigint[]) AS e(id, delta)
		JOIN accounts a ON a.id = e.id`,
		tr.ID, []uuid.UUID{tr.From, tr.To}, []int64{-tr.Settled, tr.Settled}, int64(t.fence), t.source)
}
