package inventory

import (
	"context"

	"shop/loadtest"
	"shop/locking/invariant"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Line is one product of one request, with what the client was told in the end.
// A database cannot know that; so it is loaded beside the tables and joined.
type Line struct {
	Client   uuid.UUID
	Key      string
	Action   loadtest.Action
	Order    uuid.UUID // from the answer; the zero UUID if there was none
	SKU      string
	Quantity int64
	Outcome  loadtest.Outcome
}

// HistoryChecks compare the tables with what clients were told. They need the
// temporary tables that LoadHistory fills.
var HistoryChecks = []invariant.Check{
	{
		// A service that puts more on the shelf than there was agrees with itself.
		Name: "S1 planned", Invariant: "S1",
		Means: "product whose stock is not what the plan put there minus what was bought, or that the plan does not know",
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
		// What left the shelf is at least what buyers were promised, and at most
		// that plus what may have happened.
		Name: "S2", Invariant: "S2",
		Means: "product of which more or less was taken than clients were told",
		Query: `
SELECT opening.sku
FROM proof_opening opening
LEFT JOIN products p ON p.sku = opening.sku
LEFT JOIN (SELECT sku, sum(units) FILTER (WHERE outcome = 'ok' OR units < 0 AND outcome <> 'rejected') AS least,
                       sum(units) FILTER (WHERE outcome = 'ok' OR units > 0 AND outcome <> 'rejected') AS most
           FROM (SELECT sku, outcome, CASE action WHEN 'buy' THEN quantity ELSE -quantity END AS units
                 FROM proof_lines) signed
           GROUP BY sku) told ON told.sku = opening.sku
WHERE p.sku IS NULL
   OR opening.quantity - p.stock NOT BETWEEN COALESCE(told.least, 0) AND COALESCE(told.most, 0)`,
	},
	{
		Name: "I-ACK bought", Invariant: "I-ACK",
		Means: "order that a buyer was promised, and that is not there as promised",
		Query: `
SELECT DISTINCT told.order_id::text
FROM proof_lines told
LEFT JOIN orders o
       ON o.id = told.order_id AND o.client_id = told.client_id AND o.idempotency_key = told.key
LEFT JOIN order_lines l
       ON l.order_id = o.id AND l.sku = told.sku AND l.quantity = told.quantity
WHERE told.action = 'buy' AND told.outcome = 'ok' AND l.sku IS NULL`,
	},
	{
		Name: "I-ACK cancelled", Invariant: "I-ACK",
		Means: "order whose buyer was told that it is cancelled, and that is not",
		Query: `
SELECT DISTINCT told.order_id::text
FROM proof_lines told
LEFT JOIN orders o ON o.id = told.order_id AND o.status = 'cancelled'
WHERE told.action = 'cancel' AND told.outcome = 'ok' AND o.id IS NULL`,
	},
	{
		Name: "I-REJ", Invariant: "I-REJ",
		Means: "order whose buyer was told that there will be none",
		Query: `
SELECT DISTINCT o.id::text
FROM proof_lines told
JOIN orders o ON o.client_id = told.client_id AND o.idempotency_key = told.key
WHERE told.action = 'buy' AND told.outcome = 'rejected'`,
	},
	{
		// Orders can only come from requests: anything else is an effect that no client asked for.
		Name: "I-REJ unasked", Invariant: "I-REJ",
		Means: "order that no request asked for",
		Query: `
SELECT o.id::text
FROM orders o
LEFT JOIN proof_lines told
       ON told.client_id = o.client_id AND told.key = o.idempotency_key AND told.action = 'buy'
WHERE told.key IS NULL`,
	},
}

// oversoldSQL is inventory's number, with what the plan put on the shelves instead of what
// the service says.
const oversoldSQL = `
SELECT COALESCE(sum(GREATEST(bought.units - COALESCE(opening.quantity, 0), 0)), 0)::bigint
FROM (SELECT l.sku, sum(l.quantity) AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id
      WHERE o.status = 'confirmed'
      GROUP BY l.sku) bought
LEFT JOIN proof_opening opening ON opening.sku = bought.sku`

// SoldChecks hold only after a plan was fired to its end (see NewPlan): a service
// that refuses everything oversells nothing, and must not pass for that.
var SoldChecks = []invariant.Check{{
	Name: "I-SOLD", Invariant: "I-SOLD",
	Means: "product of which something is left although all buyers wanted it",
	Query: `
SELECT opening.sku
FROM proof_opening opening
JOIN products p ON p.sku = opening.sku
WHERE p.stock > 0`,
}}

// LoadHistory copies what clients were told into temporary tables of conn.
func LoadHistory(ctx context.Context, conn *pgx.Conn, opening []Stock, lines []Line) error {
	err := loadtest.FillTable(ctx, conn, "proof_opening", "sku text, quantity bigint", opening, func(s Stock) []any {
		return []any{s.SKU, s.Quantity}
	})
	if err != nil {
		return err
	}
	const columns = "client_id uuid, key text, action text, order_id uuid, sku text, quantity bigint, outcome text"
	return loadtest.FillTable(ctx, conn, "proof_lines", columns, lines, func(l Line) []any {
		return []any{l.Client, l.Key, string(l.Action), l.Order, l.SKU, l.Quantity, string(l.Outcome)}
	})
}

// lines is what clients were told, a row for each product of each key.
func lines(records []loadtest.Record, client uuid.UUID) []Line {
	var rows []Line
	for _, r := range records {
		for _, l := range cart(r.Intent) {
			rows = append(rows, Line{
				Client: client, Key: r.Key, Action: r.Action, Order: r.Made,
				SKU: l.SKU, Quantity: l.Quantity, Outcome: r.Outcome,
			})
		}
	}
	return rows
}
