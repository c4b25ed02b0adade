package transfer

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest"
	"shop/locking/invariant"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// MoveChecks compare the tables with what the plan opened and with what clients
// were told. They need the temporary tables that LoadMoves fills: a row for each
// account, and one for each key, with what was asked for and, in told, the answer
// to a success.
var MoveChecks = []invariant.Check{
	{
		// A service that raises an opening, or opens an account, agrees with itself.
		Name: "T1 opened", Invariant: "T1",
		Means: "account that is not as the plan opened it, that the plan does not know, or that is gone",
		Query: `
SELECT id::text
FROM accounts
FULL JOIN proof_accounts USING (id, owner_id, currency, opening)
WHERE accounts.id IS NULL OR proof_accounts.id IS NULL`,
	},
	{
		Name: "I-ACK made", Invariant: "I-ACK",
		Means: "transfer that a client was promised, and that is not there as promised",
		Query: `
SELECT told.key
FROM proof_moves told
LEFT JOIN transfers t
       ON t.id = told.made AND t.client_id = told.client_id AND t.idempotency_key = told.key
      AND t.from_id = told.from_id AND t.to_id = told.to_id AND t.amount = told.amount
      AND t.id = (told.answer ->> 'id')::uuid AND t.from_id = (told.answer ->> 'from')::uuid
      AND t.to_id = (told.answer ->> 'to')::uuid AND t.amount = (told.answer ->> 'amount')::bigint
      AND CASE told.action
          WHEN 'pay' THEN told.answer ->> 'state' = 'posted' AND t.state = 'posted' AND t.settled = t.amount AND t.expires_at IS NULL
          ELSE told.answer ->> 'state' = 'reserved' AND t.expires_at = (told.answer ->> 'expires_at')::timestamptz
               AND t.expires_at - t.created_at = COALESCE(told.lasts, t.expires_at - t.created_at) END
WHERE told.action IN ('pay', 'reserve') AND told.outcome = 'ok' AND t.id IS NULL`,
	},
	{
		Name: "I-ACK ended", Invariant: "I-ACK",
		Means: "hold that a client was told is posted or voided, and that is not, or not as told",
		Query: `
SELECT told.key
FROM proof_moves told
LEFT JOIN transfers t
       ON t.id = told.hold AND t.client_id = told.client_id AND t.id = told.made
      AND t.state = told.answer ->> 'state' AND t.settled = (told.answer ->> 'settled')::bigint
      AND CASE told.action
          WHEN 'post' THEN t.state = 'posted' AND t.settled = CASE told.amount WHEN 0 THEN t.amount ELSE told.amount END
          ELSE t.state = 'voided' AND t.settled = 0 END
WHERE told.action IN ('post', 'void') AND told.outcome = 'ok' AND t.id IS NULL`,
	},
	{
		Name: "I-REJ", Invariant: "I-REJ",
		Means: "transfer whose client was told that there will be none, or whose request was never sent",
		Query: `
SELECT told.key
FROM proof_moves told
JOIN transfers t ON t.client_id = told.client_id AND t.idempotency_key = told.key
WHERE told.outcome = 'rejected' OR NOT told.sent`,
	},
	{
		// Transfers can only come from requests: anything else is an effect that no client asked for.
		Name: "I-REJ unasked", Invariant: "I-REJ",
		Means: "transfer that no request asked for",
		Query: `
SELECT t.id::text
FROM transfers t
LEFT JOIN proof_moves told
       ON told.client_id = t.client_id AND told.key = t.idempotency_key AND told.action IN ('pay', 'reserve')
WHERE told.key IS NULL`,
	},
	{
		// One strategy at a time: a strategy that guards with a fence writes it on each entry.
		// (In a shop whose strategy was changed, entries of both kinds lie side by side.)
		Name: "T4 unfenced", Invariant: "T4",
		Means: "entry on a fenced account without a fence, or with one of another epoch",
		Query: `
SELECT e.id::text
FROM ledger_entries e
JOIN accounts a ON a.id = e.account_id
WHERE a.fence_epoch <> ''
  AND (e.fence = 0 OR e.fence_epoch <> a.fence_epoch)`,
	},
	{
		Name: "I-HOLD told", Invariant: "I-HOLD",
		Means: "hold whose end is not the one that post and void were told of",
		Query: `
SELECT t.id::text
FROM transfers t
JOIN proof_moves told ON told.hold = t.id
WHERE t.state <> CASE
      WHEN told.outcome = 'ok' AND told.action = 'post' THEN 'posted'
      WHEN told.outcome = 'ok' THEN 'voided'
      WHEN told.problem = 'expired' THEN 'expired'
      WHEN told.problem = 'already-settled' AND told.action = 'post' THEN 'voided'
      WHEN told.problem = 'already-settled' THEN 'posted'
      ELSE t.state END`,
	},
	{
		Name: "I-HOLD unasked", Invariant: "I-HOLD",
		Means: "hold that was posted or voided although no request asked for it",
		Query: `
SELECT t.id::text
FROM transfers t
LEFT JOIN proof_moves told
       ON told.hold = t.id AND told.sent AND told.action = CASE t.state WHEN 'posted' THEN 'post' ELSE 'void' END
WHERE t.expires_at IS NOT NULL AND t.state IN ('posted', 'voided') AND told.key IS NULL`,
	},
	{
		Name: "I-HOLD over", Invariant: "I-HOLD",
		Means: "hold that is over, and still reserved after the sweeper's last round",
		Query: `SELECT id::text FROM transfers WHERE state = 'reserved' AND expires_at < clock_timestamp()`,
	},
	{
		// A condition is looked at some microseconds before ended_at is written.
		Name: "I-HOLD late", Invariant: "I-HOLD",
		Means: "hold that was settled after its end, or expired before it",
		Query: `
SELECT id::text
FROM transfers
WHERE state IN ('posted', 'voided') AND ended_at > expires_at + interval '1 millisecond'
   OR state = 'expired' AND ended_at < expires_at`,
	},
}

// driftSQL is transfer's number, with what the plan opened instead of what the service says.
const driftSQL = `
SELECT COALESCE(sum(abs(COALESCE(a.balance, 0) - COALESCE(o.opening, 0) - COALESCE(l.moved, 0))), 0)::bigint
FROM accounts a
FULL JOIN proof_accounts o ON o.id = a.id
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = COALESCE(a.id, o.id)`

// LoadMoves copies what the plan opened, and what clients were told, into
// temporary tables of conn.
func LoadMoves(ctx context.Context, conn *pgx.Conn, opened []Account, records []loadtest.Record, clients []loadtest.Credentials) error {
	_, err := conn.Exec(ctx, `
CREATE TEMPORARY TABLE proof_accounts (id uuid, owner_id uuid, currency text, opening bigint);
CREATE TEMPORARY TABLE proof_moves (
	client_id uuid, key text, action text, from_id uuid, to_id uuid, amount bigint, hold uuid, lasts interval,
	sent boolean, outcome text, problem text, made uuid, answer jsonb)`)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	columns := []string{"id", "owner_id", "currency", "opening"}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"proof_accounts"}, columns, pgx.CopyFromSlice(len(opened), func(i int) ([]any, error) {
		a := opened[i]
		return []any{a.ID, uuid.UUID(clients[a.Client].ID), a.Currency, a.Opening}, nil
	}))
	if err != nil {
		return fmt.Errorf("audit: copy openings: %w", err)
	}
	columns = []string{"client_id", "key", "action", "from_id", "to_id", "amount", "hold", "lasts", "sent", "outcome", "problem", "made", "answer"}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"proof_moves"}, columns, pgx.CopyFromSlice(len(records), func(i int) ([]any, error) {
		r, m := records[i], move(records[i].Intent)
		return []any{
			uuid.UUID(clients[r.Client].ID), r.Key, string(r.Action), m.From, m.To, m.Amount, m.Of, m.lasts(),
			r.Sent(), string(r.Outcome), r.Problem(), r.Made, r.Answer(),
		}, nil
	}))
	if err != nil {
		return fmt.Errorf("audit: copy history: %w", err)
	}
	_, err = conn.Exec(ctx, `ANALYZE proof_accounts; ANALYZE proof_moves`)
	return err
}

// lasts is how long a hold was asked for; nil: there is none.
func (m *Move) lasts() *time.Duration {
	if m.Hold == nil {
		return nil
	}
	return &m.Hold.For
}
