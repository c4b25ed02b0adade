// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// HistoryChecks compare the tables with the plan and with the answers to clients. They need the
// temporary tables that LoadHistory fills: a row for each product of the plan, for each request,
// and for each line of a request.
var HistoryChecks = []invariant.Check{
	{
		// If the service itself adds stock, its tables still agree with each other. Only the plan shows
		// the difference.
		Name: "S1 planned", Invariant: "S1",
		Means: "product whose stock differs from the plan's minus the confirmed orders, or that is not in the plan",
		Query: `
SELECT COALESCE(opening.sku, p.sku)
FROM proof_opening opening
FULL JOIN products p ON p.sku = opening.sku
LEFT JOIN (SELECT l.sku, sum(l.quantity) AS units
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'
           GROUP BY l.sku) bought ON bought.sku = p.sku
WHERE p.stock IS DISTINCT FROM opening.quantity - COALESCE(bought.units, 0)`,
	},
	{
		Name: "S3 products", Invariant: "S3",
		Means: "product whose name, price, currency or limit differs from the plan",
		Query: `
SELECT COALESCE(opening.sku, p.sku)
FROM proof_opening opening
FULL JOIN products p ON p.sku = opening.sku
WHERE (p.name, p.price, p.currency, p.client_max) IS DISTINCT FROM (opening.sku, opening.price, opening.currency, NULLIF(opening.client_max, 0))`,
	},
	{
		Name: "S3 orders", Invariant: "S3",
		Means: "order whose total is not the plan's prices times its quantities, in the plan's currency",
		Query: `
SELECT o.id::text
FROM orders o
LEFT JOIN order_lines l ON l.order_id = o.id
LEFT JOIN proof_opening opening ON opening.sku = l.sku
GROUP BY o.id
HAVING bool_or((l.unit_price, o.currency) IS DISTINCT FROM (opening.price, opening.currency))
    OR o.total IS DISTINCT FROM sum(l.quantity * opening.price)`,
	},
	{
		// The units that left the stock are at least those acknowledged to buyers, and
		// at most those plus the unknown ones.
		Name: "S2", Invariant: "S2",
		Means: "product of which more or less was taken than the answers to clients allow",
		Query: `
SELECT opening.sku
FROM proof_opening opening
LEFT JOIN products p ON p.sku = opening.sku
LEFT JOIN (SELECT sku, sum(units) FILTER (WHERE outcome = 'ok' OR units < 0 AND outcome = 'unknown') AS least,
                       sum(units) FILTER (WHERE outcome = 'ok' OR units > 0 AND outcome = 'unknown') AS most
           FROM (SELECT sku, outcome, CASE action WHEN 'buy' THEN quantity ELSE -quantity END AS units
                 FROM proof_lines) signed
           GROUP BY sku) summary ON summary.sku = opening.sku
WHERE p.sku IS NULL
   OR opening.quantity - p.stock NOT BETWEEN COALESCE(summary.least, 0) AND COALESCE(summary.most, 0)`,
	},
	{
		Name: "I-ACK bought", Invariant: "I-ACK",
		Means: "acknowledged order that does not exist as acknowledged",
		Query: `
SELECT DISTINCT summary.order_id::text
FROM proof_lines summary
LEFT JOIN orders o
       ON o.id = summary.order_id AND o.client_id = summary.client_id AND o.idempotency_key = summary.key
LEFT JOIN order_lines l
       ON l.order_id = o.id AND l.sku = summary.sku AND l.quantity = summary.quantity
WHERE summary.action = 'buy' AND summary.outcome = 'ok' AND l.sku IS NULL`,
	},
	{
		Name: "I-ACK cancelled", Invariant: "I-ACK",
		Means: "order whose cancellation was acknowledged, but that is not cancelled",
		Query: `
SELECT DISTINCT summary.order_id::text
FROM proof_summaries summary
LEFT JOIN orders o ON o.id = summary.order_id AND o.client_id = summary.client_id AND o.status = 'cancelled'
WHERE summary.action = 'cancel' AND summary.outcome = 'ok' AND o.id IS NULL`,
	},
	{
		Name: "I-ACK refused", Invariant: "I-ACK",
		Means: "order that was reported as already cancelled, although no request cancelled it",
		Query: `
SELECT DISTINCT summary.order_id::text
FROM proof_summaries summary
LEFT JOIN proof_summaries won
       ON won.order_id = summary.order_id AND won.client_id = summary.client_id
      AND won.action = 'cancel' AND won.outcome IN ('ok', 'unknown')
WHERE summary.problem = 'already-cancelled' AND won.name IS NULL`,
	},
	{
		Name: "I-ONCE cancelled", Invariant: "I-ONCE",
		Means: "order that was cancelled under two keys",
		Query: `
SELECT order_id::text
FROM proof_summaries
WHERE action = 'cancel' AND outcome = 'ok'
GROUP BY order_id
HAVING count(*) > 1`,
	},
	{
		// Two requests may share a key; one of them is then refused because of the other.
		Name: "I-REJ", Invariant: "I-REJ",
		Means: "order of a request that was refused, or reported as not done, or never sent",
		Query: `
SELECT o.id::text
FROM orders o
JOIN proof_summaries summary
  ON summary.client_id = o.client_id AND summary.key = o.idempotency_key AND summary.action = 'buy'
GROUP BY o.id
HAVING bool_and(summary.outcome IN ('rejected', 'open') OR NOT summary.sent)`,
	},
	{
		Name: "I-REJ unasked", Invariant: "I-REJ",
		Means: "order without a request for it",
		Query: `
SELECT o.id::text
FROM orders o
LEFT JOIN proof_summaries summary
       ON summary.client_id = o.client_id AND summary.key = o.idempotency_key AND summary.action = 'buy'
WHERE summary.name IS NULL`,
	},
	{
		Name: "I-REJ otherwise", Invariant: "I-REJ",
		Means: "order whose lines are those of no successful or unknown request under its key",
		Query: `
SELECT o.id::text
FROM orders o
WHERE NOT EXISTS (SELECT
                  FROM proof_summaries summary
                  WHERE summary.client_id = o.client_id AND summary.key = o.idempotency_key AND summary.action = 'buy'
                    AND summary.outcome IN ('ok', 'unknown')
                    AND summary.lines = (SELECT jsonb_object_agg(l.sku, l.quantity)
                                      FROM order_lines l
                                      WHERE l.order_id = o.id))`,
	},
	{
		Name: "I-REJ cancelled", Invariant: "I-REJ",
		Means: "cancelled order without a request to cancel it that succeeded or is unknown",
		Query: `
SELECT o.id::text
FROM orders o
LEFT JOIN proof_summaries summary
       ON summary.order_id = o.id AND summary.client_id = o.client_id AND summary.action = 'cancel'
      AND summary.sent AND summary.outcome IN ('ok', 'unknown')
WHERE o.status = 'cancelled' AND summary.name IS NULL`,
	},
}

// oversoldSQL is inventory's number, computed from the plan's stock instead of the service's.
const oversoldSQL = `
SELECT COALESCE(sum(GREATEST(bought.units - COALESCE(opening.quantity, 0), 0)), 0)::bigint
FROM (SELECT l.sku, sum(l.quantity) AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id
      WHERE o.status = 'confirmed'
      GROUP BY l.sku) bought
LEFT JOIN proof_opening opening ON opening.sku = bought.sku`

// SoldChecks apply only after a whole plan was sent (see NewPlan). They fail a service that
// refuses everything, and so oversells nothing.
var SoldChecks = []invariant.Check{{
	Name: "I-SOLD", Invariant: "I-SOLD",
	Means: "product with stock left although the demand exceeded it",
	Query: `
SELECT opening.sku
FROM proof_opening opening
JOIN products p ON p.sku = opening.sku
WHERE p.stock > 0`,
}}

// LoadHistory copies the products of the plan and the answers to clients into temporary tables
// of conn.
func LoadHistory(ctx context.Context, conn *pgx.Conn, opening []Stock, records []traffic.Record, clients []loadtest.Credentials) error {
	if err := fillOpening(ctx, conn, opening); err != nil {
		return err
	}
	const asked = `name text, client_id uuid, key text, action text, order_id uuid, sku text, lines jsonb,
	sent boolean, outcome text, problem text, begun bigint, answered bigint, answer jsonb`
	err := site.FillTable(ctx, conn, "proof_summaries", asked, records, func(r traffic.Record) []any {
		order, sku, lines := about(r)
		begun, answered := r.Times()
		return []any{
			r.Key, uuid.UUID(clients[r.Client].ID), r.IdempotencyKey(), string(r.Action), order, sku, json.RawMessage(traffic.Encode(lines)),
			r.Sent(), string(r.Outcome), r.Problem(), int64(begun), int64(answered), traffic.Canonical(r.Answer()),
		}
	})
	if err != nil {
		return err
	}
	err = site.FillTable(ctx, conn, "proof_shown", "name text, sku text, shown jsonb", shown(opening, records), func(s shelf) []any {
		return []any{s.name, s.sku, s.shown}
	})
	if err != nil {
		return err
	}
	const columns = "client_id uuid, key text, action text, order_id uuid, sku text, quantity bigint, outcome text"
	return site.FillTable(ctx, conn, "proof_lines", columns, requestLines(records), func(l requestLine) []any {
		order, _, _ := about(l.Record)
		return []any{uuid.UUID(clients[l.Client].ID), l.IdempotencyKey(), string(l.Action), order, l.SKU, l.Quantity, string(l.Outcome)}
	})
}

// fillOpening copies the products of the plan.
func fillOpening(ctx context.Context, conn *pgx.Conn, opening []Stock) error {
	return site.FillTable(ctx, conn, "proof_opening", "sku text, quantity bigint, price bigint, currency text, client_max bigint", opening, func(s Stock) []any {
		return []any{s.SKU, s.Quantity, s.Price, s.Currency, s.ClientMax}
	})
}

// about returns the objects of a request: its order, which for a purchase is the one in the
// answer; its product, if it reads one; and the quantity of each product, by SKU.
func about(r traffic.Record) (order uuid.UUID, sku string, lines map[string]int64) {
	lines = map[string]int64{}
	for _, l := range cart(r.Intent) {
		lines[l.SKU] += l.Quantity
	}
	switch of := r.Of.(type) {
	case Return:
		order = of.Order
	case Read:
		order, sku = of.Order, of.SKU
	default:
		order = r.Made
	}
	return order, sku, lines
}

// requestLine is a line of a request.
type requestLine struct {
	traffic.Record
	Stock
}

// requestLines returns the lines of all requests.
func requestLines(records []traffic.Record) (rows []requestLine) {
	for _, r := range records {
		for _, l := range cart(r.Intent) {
			rows = append(rows, requestLine{r, l})
		}
	}
	return rows
}
