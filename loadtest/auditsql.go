// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// SQL is what the audit of a flow in PostgreSQL runs.
type SQL struct {
	// Fill copies the plan and the answers to clients into temporary tables.
	Fill    func(context.Context, *pgx.Conn) error
	Checks  []invariant.Check
	Effects string // lists the effects: see judge.StoredSQL
	Number  string // Flow.Number
	// Then adds what no query finds.
	Then func(context.Context, *pgx.Conn, *Audited) error
}

// AuditSQL audits the trial's database when no other connection to it is left.
func (t *Trial) AuditSQL(ctx context.Context, s SQL) (a Audited, err error) {
	conn, err := t.quiet(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err = s.Fill(ctx, conn); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, s.Checks, invariant.SQL(conn)); err != nil {
		return a, err
	}
	if a.Effects, err = judge.StoredSQL(ctx, conn, s.Effects); err != nil {
		return a, err
	}
	if a.Number, err = invariant.Number(ctx, conn, s.Number); err != nil {
		return a, err
	}
	batches, err := invariant.Number(ctx, conn, togetherSQL)
	if err != nil {
		return a, err
	}
	a.Evidence = map[string]int64{"together": batches}
	return a, s.Then(ctx, conn, &a)
}

// togetherSQL counts the transactions that answered several requests.
const togetherSQL = `
SELECT count(*)
FROM (SELECT FROM idempotency_keys GROUP BY xmin::text HAVING count(*) > 1) AS batches`

// FillSummaries copies the answers to clients into the temporary table proof_summaries: a row for each request, with more
// columns of the flow. The times of the history count from epoch.
func FillSummaries(ctx context.Context, conn *pgx.Conn, records []traffic.Record, clients []Credentials, epoch time.Time,
	columns string, more func(traffic.Record) []any,
) error {
	const common = `name text, client_id uuid, key text, action text, sent boolean, outcome text, problem text,
	begun timestamptz, answered timestamptz, made uuid, answer jsonb, `
	return site.FillTable(ctx, conn, "proof_summaries", common+columns, records, func(r traffic.Record) []any {
		begun, answered := r.Times()
		return append([]any{
			r.Key, uuid.UUID(clients[r.Client].ID), r.IdempotencyKey(), string(r.Action), r.Sent(), string(r.Outcome), r.Problem(),
			epoch.Add(begun), epoch.Add(answered), r.Made, traffic.Canonical(r.Answer()),
		}, more(r)...)
	})
}

// KeyChecks returns the checks that each row of a table has a request under its key that is not known to have failed. what
// is such a row, and makes are the actions that make one.
func KeyChecks(table, what, makes string) []invariant.Check {
	return []invariant.Check{
		{
			// Two requests may share a key; one of them is then refused because of the other.
			Name: "I-REJ", Invariant: "I-REJ",
			Means: what + " of a request that was refused, or reported as not done, or never sent",
			Query: `
SELECT made.id::text
FROM ` + table + ` made
JOIN proof_summaries summary
  ON summary.client_id = made.client_id AND summary.key = made.idempotency_key AND summary.action IN (` + makes + `)
GROUP BY made.id
HAVING bool_and(summary.outcome IN ('rejected', 'open') OR NOT summary.sent)`,
		},
		{
			Name: "I-REJ unasked", Invariant: "I-REJ",
			Means: what + " without a request for it",
			Query: `
SELECT made.id::text
FROM ` + table + ` made
LEFT JOIN proof_summaries summary
       ON summary.client_id = made.client_id AND summary.key = made.idempotency_key AND summary.action IN (` + makes + `)
WHERE summary.name IS NULL`,
		},
	}
}
