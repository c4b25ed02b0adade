// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/idempotency/pgtx"
	"shop/locking/invariant"
	"shop/transfer"
)

// HistoryChecks compare the tables with the accounts of the plan and with the answers to
// clients. They need the temporary tables that LoadHistory fills: a row for each account,
// and a row for each request with its answer.
var HistoryChecks = append(loadtest.KeyChecks("transfers", "transfer", "'pay', 'reserve'"), []invariant.Check{
	{
		// If the service itself raises an opening, or opens an account, its tables still agree with each
		// other. Only the plan shows the difference.
		Name: "T1 opened", Invariant: "T1",
		Means: "account that differs from the plan, that is not in the plan, or that is missing",
		Query: `
SELECT id::text
FROM accounts
FULL JOIN proof_accounts USING (id, owner_id, currency, opening)
WHERE accounts.id IS NULL OR proof_accounts.id IS NULL`,
	},
	{
		Name: "T1 planned", Invariant: "T1",
		Means: "currency whose total differs from the plan's",
		Query: `
SELECT currency || ' off by ' || sum(amount)
FROM (SELECT currency, balance AS amount FROM accounts
      UNION ALL
      SELECT currency, -opening FROM proof_accounts) all_of_it
GROUP BY currency
HAVING sum(amount) <> 0`,
	},
	{
		Name: "T3 planned", Invariant: "T3",
		Means: "account whose balance differs from the plan's opening plus its entries",
		Query: `
SELECT COALESCE(a.id, o.id)::text
FROM accounts a
FULL JOIN proof_accounts o ON o.id = a.id
LEFT JOIN ` + movedSQL + ` ON l.account_id = a.id
WHERE a.balance IS DISTINCT FROM o.opening + COALESCE(l.moved, 0)`,
	},
	{
		Name: "I-ACK made", Invariant: "I-ACK",
		Means: "acknowledged transfer that does not exist as acknowledged",
		Query: `
SELECT summary.name
FROM proof_summaries summary
LEFT JOIN transfers t
       ON t.id = summary.made AND t.client_id = summary.client_id AND t.idempotency_key = summary.key
      AND t.from_id = summary.from_id AND t.to_id = summary.to_id AND t.amount = summary.amount
      AND t.id::text = summary.answer ->> 'id' AND t.from_id::text = summary.answer ->> 'from'
      AND t.to_id::text = summary.answer ->> 'to' AND t.amount::text = summary.answer ->> 'amount'
      AND CASE summary.action
          WHEN 'pay' THEN summary.answer ->> 'state' = 'posted' AND t.state = 'posted' AND t.settled = t.amount AND t.expires_at IS NULL
          ELSE summary.answer ->> 'state' = 'reserved' AND to_char(t.expires_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `) = summary.answer ->> 'expires_at'
               AND t.expires_at - t.created_at = COALESCE(summary.lasts, t.expires_at - t.created_at) END
WHERE summary.action IN ('pay', 'reserve') AND summary.outcome = 'ok' AND t.id IS NULL`,
	},
	{
		Name: "I-ACK ended", Invariant: "I-ACK",
		Means: "hold whose acknowledged post or void is not stored as acknowledged",
		Query: `
SELECT summary.name
FROM proof_summaries summary
LEFT JOIN transfers t
       ON t.id = summary.hold AND t.client_id = summary.client_id AND t.id = summary.made
      AND t.state = summary.answer ->> 'state' AND t.settled::text = summary.answer ->> 'settled'
      AND CASE summary.action
          WHEN 'post' THEN t.state = 'posted' AND t.settled = CASE summary.amount WHEN 0 THEN t.amount ELSE summary.amount END
          ELSE t.state = 'voided' AND t.settled = 0 END
WHERE summary.action IN ('post', 'void') AND summary.outcome = 'ok' AND t.id IS NULL`,
	},
	{
		Name: "I-REJ otherwise", Invariant: "I-REJ",
		Means: "transfer whose amount, accounts, currency or duration are those of no successful or unknown request under its key",
		Query: `
SELECT t.id::text
FROM transfers t
WHERE NOT EXISTS (SELECT
                  FROM proof_summaries summary
                  JOIN proof_accounts payer ON payer.id = summary.from_id
                  WHERE summary.client_id = t.client_id AND summary.key = t.idempotency_key
                    AND summary.action = CASE WHEN t.expires_at IS NULL THEN 'pay' ELSE 'reserve' END
                    AND summary.outcome IN ('ok', 'unknown')
                    AND (summary.from_id, summary.to_id, summary.amount, payer.currency) = (t.from_id, t.to_id, t.amount, t.currency)
                    AND payer.owner_id = t.client_id
                    AND (summary.lasts IS NULL OR summary.lasts = t.expires_at - t.created_at))`,
	},
	{
		// A scenario runs one strategy, and a strategy with fences writes one on each entry.
		// (A shop whose strategy was changed has entries of both kinds.)
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
		Name: "I-HOLD answered", Invariant: "I-HOLD",
		Means: "hold whose end contradicts an answer to a post or void of it",
		Query: `
SELECT DISTINCT t.id::text
FROM transfers t
JOIN proof_summaries summary ON summary.hold = t.id AND summary.action IN ('post', 'void')
WHERE NOT CASE
      WHEN summary.outcome = 'ok' AND summary.action = 'post' THEN t.state = 'posted'
      WHEN summary.outcome = 'ok' THEN t.state = 'voided'
      WHEN summary.problem = 'expired' THEN t.state = 'expired'
      WHEN summary.problem = 'already-settled' THEN t.state IN ('posted', 'voided')
      ELSE true END`,
	},
	{
		Name: "I-HOLD twice", Invariant: "I-HOLD",
		Means: "hold that was ended under two keys",
		Query: `
SELECT hold::text
FROM proof_summaries
WHERE action IN ('post', 'void') AND outcome = 'ok'
GROUP BY hold
HAVING count(*) > 1`,
	},
	{
		Name: "I-HOLD refused", Invariant: "I-HOLD",
		Means: "hold that was reported as already settled, although no request settled it",
		Query: `
SELECT DISTINCT t.id::text
FROM transfers t
JOIN proof_summaries summary ON summary.hold = t.id AND summary.problem = 'already-settled'
LEFT JOIN proof_summaries won
       ON won.hold = t.id AND won.client_id = t.client_id AND won.action IN ('post', 'void') AND won.outcome IN ('ok', 'unknown')
WHERE t.expires_at IS NOT NULL AND won.name IS NULL`,
	},
	{
		Name: "I-HOLD unasked", Invariant: "I-HOLD",
		Means: "posted or voided hold without a request for that end that succeeded or is unknown",
		Query: `
SELECT t.id::text
FROM transfers t
LEFT JOIN proof_summaries summary
       ON summary.hold = t.id AND summary.client_id = t.client_id AND summary.sent AND summary.outcome IN ('ok', 'unknown')
      AND summary.action = CASE t.state WHEN 'posted' THEN 'post' ELSE 'void' END
WHERE t.expires_at IS NOT NULL AND t.state IN ('posted', 'voided') AND summary.key IS NULL`,
	},
	{
		Name: "I-HOLD over", Invariant: "I-HOLD",
		Means: "expired hold that is still reserved after the sweeper's last round",
		Query: `SELECT id::text FROM transfers WHERE state = 'reserved' AND expires_at < clock_timestamp()`,
	},
	{
		// The service checks the time some microseconds before it writes ended_at.
		Name: "I-HOLD late", Invariant: "I-HOLD",
		Means: "hold that was settled after its time, or expired before it",
		Query: `
SELECT id::text
FROM transfers
WHERE state IN ('posted', 'voided') AND ended_at > expires_at + interval '1 millisecond'
   OR state = 'expired' AND ended_at < expires_at`,
	},
}...)

// clockTolerance is how far the clocks of the database and of the clients may drift apart during a hold.
const clockTolerance = `interval '50 milliseconds'`

// commitTolerance is how much later than the time that it has written a transaction may be visible: in pgtx.CommitTimeout
// COMMIT is answered, or the outcome is unknown.
var commitTolerance = fmt.Sprintf("interval '%d milliseconds'", pgtx.CommitTimeout.Milliseconds())

// ClockChecks use the clock of the clients. (I-CLOCK checks that the service's own times lie between the
// first attempt and the answer.)
var ClockChecks = []invariant.Check{
	{
		// Whatever times the service wrote: a hold lasts for the requested time, counted from a
		// moment between request and answer.
		Name: "I-HOLD time", Invariant: "I-HOLD",
		Means: "hold that was settled after its requested time, or refused as expired before",
		Query: `
SELECT DISTINCT summary.hold::text
FROM proof_summaries summary
JOIN proof_summaries held ON held.made = summary.hold AND held.action = 'reserve' AND held.outcome = 'ok'
WHERE summary.action IN ('post', 'void')
  AND (summary.outcome = 'ok' AND summary.begun > held.answered + held.lasts + ` + clockTolerance + `
       OR summary.problem = 'expired' AND summary.answered < held.begun + held.lasts - ` + clockTolerance + `)`,
	},
}

// movedSQL is the sum of each account's entries.
const movedSQL = `(SELECT account_id, sum(delta) AS moved FROM ledger_entries GROUP BY account_id) l`

// driftSQL is transfer's number, computed from the plan's openings, in the table opened, instead of the service's.
func driftSQL(opened string) string {
	return `
SELECT COALESCE(sum(abs(COALESCE(a.balance, 0) - COALESCE(o.opening, 0) - COALESCE(l.moved, 0))), 0)::bigint
FROM accounts a
FULL JOIN ` + opened + ` o ON o.id = a.id
LEFT JOIN ` + movedSQL + ` ON l.account_id = COALESCE(a.id, o.id)`
}

// LoadHistory copies the accounts of the plan and the answers to clients into
// temporary tables of conn. The times of the history count from epoch.
func LoadHistory(ctx context.Context, conn *pgx.Conn, opened []money.Account, records []traffic.Record,
	clients []loadtest.Credentials, epoch time.Time,
) error {
	err := site.FillTable(ctx, conn, "proof_accounts", "id uuid, owner_id uuid, currency text, opening bigint", opened, func(a money.Account) []any {
		return []any{a.ID, uuid.UUID(clients[a.Client].ID), a.Currency, a.Opening}
	})
	if err != nil {
		return err
	}
	const columns = "from_id uuid, to_id uuid, account uuid, amount bigint, hold uuid, lasts interval"
	return loadtest.FillSummaries(ctx, conn, records, clients, epoch, columns, func(r traffic.Record) []any {
		m, read := &Move{}, Read{}
		switch of := r.Of.(type) {
		case *Move:
			m = of
		case Read:
			m.Of, read = of.Transfer, of
		}
		var lasts *time.Duration
		if m.Hold != nil {
			lasts = &m.Hold.For
		}
		return []any{m.From, m.To, read.Account, m.Amount, m.Of, lasts}
	})
}

// audit checks the database against the plan and the answers.
func audit(ctx context.Context, t *loadtest.Trial, records []traffic.Record) (loadtest.Audited, error) {
	accounts := money.Accounts(t.Plan)
	return t.AuditSQL(ctx, loadtest.SQL{
		Fill: func(ctx context.Context, conn *pgx.Conn) error {
			return LoadHistory(ctx, conn, accounts, records, t.Clients, t.History.Epoch)
		},
		Checks:  slices.Concat(transfer.Invariants.Checks, HistoryChecks, ClockChecks, BodyChecks),
		Effects: effectsSQL,
		Number:  driftSQL("proof_accounts"),
		Then: func(ctx context.Context, conn *pgx.Conn, a *loadtest.Audited) (err error) {
			a.Findings.Add("I-BODY", misreported(records)...)
			a.Findings.Add("I-SPENT", money.WronglyRefused(t.Loaded(records), accounts, payer)...)
			addSeen(t, a, records)
			if err := count(ctx, conn, a.Evidence); err != nil {
				return err
			}
			a.Own, err = expiries(ctx, conn)
			return err
		},
	})
}

// addSeen adds what was seen on the wire, and in the answers.
func addSeen(t *loadtest.Trial, a *loadtest.Audited, records []traffic.Record) {
	found := func(n int64, text string) (list []string) {
		if n > 0 {
			list = append(list, fmt.Sprintf(text, n))
		}
		return list
	}
	// The ledger shows them only if the service wrote their fences into it.
	a.Findings.Add("T4", found(t.Seen("fence_ignored"), "%d late writes were committed with an older fence than their account had")...)
	if t.Seen("batches_cut") > 0 { // the ledger does not show them: each waits at its guard until PostgreSQL has decided the last one
		a.Findings.Add("T5", found(t.Seen("fence_kept"), "%d transactions used a lease after a COMMIT under it had no answer")...)
	}
	var stale int64
	for _, r := range records {
		if r.Refused(money.Short) {
			a.Evidence["short"]++
		}
		for _, attempt := range r.Attempts {
			if attempt.Problem == "stale" {
				stale++
			}
		}
	}
	if t.Scenario.Fault == loadtest.NoFault && t.Monitored["leases_ended"] == 0 {
		a.Findings.Add("I-RIGHT", found(stale, "%d holders of a lock were refused although none was late")...)
		a.Evidence["rightful_refused"] = stale
	}
}

// count counts the transfers that moved money, and the holds by how they ended, as evidence that all three ends occurred.
func count(ctx context.Context, conn *pgx.Conn, evidence map[string]int64) error {
	rows, _ := conn.Query(ctx, `
SELECT 'holds_' || state, count(*) FROM transfers WHERE expires_at IS NOT NULL AND state <> 'reserved' GROUP BY state
UNION ALL
SELECT 'moved', count(*) FROM transfers WHERE state = 'posted'`) // ForEachRow returns its error
	var name string
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		evidence[name] = n
		return nil
	})
	if err != nil {
		return fmt.Errorf("audit: ends of holds: %w", err)
	}
	return nil
}

// payer returns the account that a request takes money from.
func payer(i traffic.Intent) uuid.UUID { return move(i).From }

// effectsSQL lists payments, holds, posts and voids by their idempotency key. The service reads the
// times under the locks of both accounts, so they are in the order of the writes.
const effectsSQL = `
SELECT client_id, idempotency_key, jsonb_build_object('id', id), (extract(epoch FROM created_at) * 1000000)::bigint
FROM transfers
UNION ALL
SELECT k.client_id, k.key, jsonb_build_object('id', t.id), (extract(epoch FROM t.ended_at) * 1000000)::bigint
FROM (SELECT client_id, key, encode(body, 'escape') AS answer
      FROM idempotency_keys
      WHERE status = 201) k
JOIN transfers t ON t.id = substring(k.answer FROM '"id":"([0-9a-f-]{36})"')::uuid
WHERE t.ended_at IS NOT NULL AND k.answer ~ '"state":"(posted|voided)"' AND (t.client_id, t.idempotency_key) <> (k.client_id, k.key)`

// expiredSQL lists the holds that the service expired.
const expiredSQL = `
SELECT idempotency_key, id, from_id, to_id, (extract(epoch FROM ended_at) * 1000000)::bigint
FROM transfers
WHERE state = 'expired'
ORDER BY ended_at`

// expiries reads the operations of the service itself.
func expiries(ctx context.Context, conn *pgx.Conn) (own []linear.Operation, err error) {
	var (
		key          string
		id, from, to uuid.UUID
		order        int64
	)
	rows, _ := conn.Query(ctx, expiredSQL)
	_, err = pgx.ForEachRow(rows, []any{&key, &id, &from, &to, &order}, func() error {
		own = append(own, linear.Operation{
			Client: linear.Service, Key: "expire-" + key, Action: string(Expire), Outcome: string(traffic.Unknown),
			Effect: linear.Yes, Stored: traffic.Encode(map[string]uuid.UUID{"id": id}), Order: order,
			Objects: []string{from.String(), to.String()},
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("audit: expired holds: %w", err)
	}
	return own, nil
}
