// SPDX-License-Identifier: MIT

package transfer

import (
	"github.com/google/uuid"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// BodyChecks compare the answers of successes, field by field, with the plan and the tables.
var BodyChecks = []invariant.Check{
	{
		// A read may show a hold as reserved or as it ended: the next check compares the times.
		Name: "I-BODY transfers", Invariant: "I-BODY",
		Means: "answer with a transfer that differs from the table",
		Query: `
SELECT summary.name
FROM proof_summaries summary
LEFT JOIN transfers t ON t.id = CASE WHEN summary.action IN ('pay', 'reserve') THEN summary.made ELSE summary.hold END AND t.client_id = summary.client_id
LEFT JOIN LATERAL (SELECT summary.action = 'reserve'
                          OR summary.action = 'read-transfer' AND summary.answer ->> 'state' = 'reserved' AND t.expires_at IS NOT NULL AS held) was ON true
WHERE summary.action IN ('pay', 'reserve', 'post', 'void', 'read-transfer') AND summary.outcome = 'ok'
  AND summary.answer IS DISTINCT FROM jsonb_strip_nulls(jsonb_build_object(
      'id', t.id, 'from', t.from_id, 'to', t.to_id, 'amount', t.amount, 'currency', t.currency,
      'state', CASE WHEN was.held THEN 'reserved' ELSE t.state END,
      'settled', CASE WHEN was.held THEN 0 ELSE t.settled END,
      'created_at', to_char(t.created_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `),
      'expires_at', to_char(t.expires_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `),
      'ended_at', CASE WHEN NOT was.held THEN to_char(t.ended_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `) END))`,
	},
	{
		// By the clock of the clients.
		Name: "I-BODY state", Invariant: "I-BODY",
		Means: "read that shows a hold as ended before that was requested, or before its time, or as reserved after its end was acknowledged",
		Query: `
SELECT summary.name
FROM proof_summaries summary
JOIN proof_summaries made ON made.made = summary.hold AND made.action = 'reserve' AND made.outcome = 'ok'
LEFT JOIN (SELECT hold, client_id, action,
                  min(begun) FILTER (WHERE outcome <> 'rejected') AS asked,
                  min(answered) FILTER (WHERE outcome = 'ok') AS done
           FROM proof_summaries
           WHERE action IN ('post', 'void')
           GROUP BY hold, client_id, action) ended
       ON ended.hold = summary.hold AND ended.client_id = summary.client_id
      AND (summary.answer ->> 'state' = 'reserved' OR ended.action = CASE summary.answer ->> 'state' WHEN 'posted' THEN 'post' WHEN 'voided' THEN 'void' END)
WHERE summary.action = 'read-transfer' AND summary.outcome = 'ok'
  AND CASE summary.answer ->> 'state'
      WHEN 'reserved' THEN ended.done < summary.begun
      WHEN 'expired' THEN summary.answered < made.begun + made.lasts - ` + clockTolerance + `
      ELSE ended.asked IS NULL OR ended.asked > summary.answered END`,
	},
	{
		// The balance must be the one after the latest entry shown. (I-LIN compares it with the other answers.) The money of
		// holds that are over is available while it is held: until the end is committed, which is later than ended_at.
		Name: "I-BODY accounts", Invariant: "I-BODY",
		Means: "read with an account that differs from the plan's opening plus its entries",
		Query: `
SELECT summary.name
FROM proof_summaries summary
LEFT JOIN accounts a ON a.id = summary.account
LEFT JOIN proof_accounts opened ON opened.id = summary.account AND opened.owner_id = summary.client_id
LEFT JOIN LATERAL (SELECT CASE jsonb_typeof(summary.answer #> '{entries,0,version}') WHEN 'number' THEN (summary.answer #>> '{entries,0,version}')::numeric ELSE 0 END AS version,
                          CASE jsonb_typeof(summary.answer -> 'held') WHEN 'number' THEN (summary.answer ->> 'held')::numeric ELSE -1 END AS held,
                          CASE jsonb_typeof(summary.answer -> 'available') WHEN 'number' THEN (summary.answer ->> 'available')::numeric ELSE -1 END AS available) shown ON true
LEFT JOIN LATERAL (SELECT opened.opening + COALESCE(sum(delta), 0) AS balance,
                          jsonb_agg(jsonb_build_object('transfer', transfer_id, 'delta', delta, 'version', account_version,
                                                       'created_at', to_char(created_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `))
                                    ORDER BY account_version DESC) FILTER (WHERE place <= 20) AS entries
                   FROM (SELECT *, row_number() OVER (ORDER BY account_version DESC) AS place
                         FROM ledger_entries
                         WHERE account_id = summary.account AND account_version <= shown.version) latest) was ON true
LEFT JOIN LATERAL (SELECT COALESCE(sum(amount), 0) AS money
                   FROM transfers
                   WHERE from_id = summary.account AND expires_at <= summary.answered + ` + clockTolerance + `
                     AND (ended_at >= summary.begun - ` + commitTolerance + `) IS NOT FALSE) over ON true
WHERE summary.action = 'read-account' AND summary.outcome = 'ok'
  AND (shown.held NOT BETWEEN 0 AND was.balance
       OR shown.available NOT BETWEEN was.balance - shown.held AND LEAST(was.balance, was.balance - shown.held + over.money)
       OR summary.answer IS DISTINCT FROM jsonb_build_object(
          'id', opened.id, 'currency', opened.currency, 'balance', was.balance, 'held', shown.held,
          'available', shown.available, 'entries', COALESCE(was.entries, '[]'),
          'created_at', to_char(a.created_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `)))`,
	},
}

// misreported lists the refusals for lack of funds whose body does not match the request.
func misreported(records []traffic.Record) []string {
	return money.Misreported(records, "account", func(i traffic.Intent) (uuid.UUID, int64) { return move(i).From, move(i).Amount })
}
