// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// HistoryChecks compare the tables with the plan and with the answers to clients. They need the
// temporary tables that LoadHistory fills: a row for each product of the plan, for each request,
// and for each line of a request.
var HistoryChecks = append(loadtest.KeyChecks("orders", "order", "'buy'"), []invariant.Check{
	{
		// If the service itself adds stock, its tables still agree with each other. Only the plan shows
		// the difference.
		Name: "S1 planned", Invariant: "S1",
		Means: "product whose stock differs from the plan's minus the confirmed orders, or that is not in the plan",
		Query: `
SELECT COALESCE(opening.sku, p.sku)
FROM proof_opening opening
FULL JOIN products_with_slots p ON p.sku = opening.sku
LEFT JOIN ` + boughtSQL + ` ON bought.sku = p.sku
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
LEFT JOIN products_with_slots p ON p.sku = opening.sku
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
}...)

// boughtSQL is the units of each product in confirmed orders.
const boughtSQL = `
(SELECT l.sku, sum(l.quantity) AS units
 FROM order_lines l
 JOIN orders o ON o.id = l.order_id
 WHERE o.status = 'confirmed'
 GROUP BY l.sku) bought`

// oversoldSQL is inventory's number, computed from the plan's stock instead of the service's.
const oversoldSQL = `
SELECT COALESCE(sum(GREATEST(bought.units - COALESCE(opening.quantity, 0), 0)), 0)::bigint
FROM ` + boughtSQL + `
LEFT JOIN proof_opening opening ON opening.sku = bought.sku`

// SoldChecks apply only after a whole plan was sent (see NewPlan). They fail a service that
// refuses everything, and so oversells nothing.
var SoldChecks = []invariant.Check{{
	Name: "I-SOLD", Invariant: "I-SOLD",
	Means: "product with stock left although the demand exceeded it",
	Query: `
SELECT opening.sku
FROM proof_opening opening
JOIN products_with_slots p ON p.sku = opening.sku
WHERE p.stock > 0`,
}}

// LoadHistory copies the products of the plan and the answers to clients into temporary tables of conn. The times of the
// history count from epoch.
func LoadHistory(ctx context.Context, conn *pgx.Conn, opening []Stock, records []traffic.Record,
	clients []loadtest.Credentials, epoch time.Time,
) error {
	const products = "sku text, quantity bigint, price bigint, currency text, client_max bigint"
	err := site.FillTable(ctx, conn, "proof_opening", products, opening, func(s Stock) []any {
		return []any{s.SKU, s.Quantity, s.Price, s.Currency, s.ClientMax}
	})
	if err != nil {
		return err
	}
	const columns = "order_id uuid, sku text, lines jsonb"
	err = loadtest.FillSummaries(ctx, conn, records, clients, epoch, columns, func(r traffic.Record) []any {
		lines, order, read := map[string]int64{}, r.Made, Read{}
		for _, l := range cart(r.Intent) {
			lines[l.SKU] += l.Quantity
		}
		switch of := r.Of.(type) {
		case Return:
			order = of.Order
		case Read:
			order, read = of.Order, of
		}
		return []any{order, read.SKU, json.RawMessage(traffic.Encode(lines))}
	})
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, linesSQL+";"+shownSQL); err != nil {
		return fmt.Errorf("audit: lines of requests and answers: %w", err)
	}
	return nil
}

// linesSQL creates a view of the lines of requests.
const linesSQL = `
CREATE OR REPLACE TEMPORARY VIEW proof_lines AS
SELECT summary.client_id, summary.key, summary.action, summary.order_id, line.sku, line.quantity::bigint AS quantity, summary.outcome
FROM proof_summaries summary, jsonb_each_text(summary.lines) line (sku, quantity)`

// effectsSQL lists purchases and cancellations by their idempotency key. Movements are written
// under the row locks of their products, so their ids are in the order of the effects. With slots they are only
// about in that order.
const effectsSQL = `
SELECT o.client_id, o.idempotency_key, jsonb_build_object('id', o.id), min(m.id)
FROM orders o
JOIN stock_movements m ON m.order_id = o.id AND m.kind = 'sale'
GROUP BY o.id
UNION ALL
SELECT k.client_id, k.key, jsonb_build_object('id', k.id), min(m.id)
FROM (SELECT client_id, key, substring(encode(body, 'escape') FROM '"id":"([0-9a-f-]{36})","status":"cancelled"')::uuid AS id
      FROM idempotency_keys
      WHERE status = 201) k
JOIN stock_movements m ON m.order_id = k.id AND m.kind = 'cancel'
GROUP BY k.client_id, k.key, k.id`

// audit checks the database against the plan and the answers.
func audit(ctx context.Context, t *loadtest.Trial, records []traffic.Record) (loadtest.Audited, error) {
	return t.AuditSQL(ctx, loadtest.SQL{
		Fill: func(ctx context.Context, conn *pgx.Conn) error {
			return LoadHistory(ctx, conn, Products(t.Plan), records, t.Clients, t.History.Epoch)
		},
		Checks:  slices.Concat(inventory.Invariants.Checks, HistoryChecks, BodyChecks, SoldChecks),
		Effects: effectsSQL,
		Number:  oversoldSQL,
		Then: func(ctx context.Context, conn *pgx.Conn, a *loadtest.Audited) error {
			a.Findings.Add("I-BODY", misreported(records)...)
			oversale, err := findOversale(ctx, conn, t.Loaded(records))
			a.Story = oversale.story(t.Samples)
			return err
		},
	})
}

// oversale has the sales of the first product that was oversold, in the order of their movements in the database.
type oversale struct {
	SKU   string
	Put   int64 // units in the plan
	Sales []sale
}

type sale struct {
	Units   int64
	Sold    int64 // units up to and including this sale
	Attempt traffic.Attempt
}

// findOversale finds the first product that was oversold, with its sales to the
// keys in records; nil: none. It needs the tables of LoadHistory.
func findOversale(ctx context.Context, conn *pgx.Conn, records []traffic.Record) (*oversale, error) {
	answered := map[uuid.UUID]traffic.Attempt{}
	for _, r := range records {
		if r.Action == Buy && r.Outcome == traffic.OK {
			answered[r.Made] = r.Deciding()
		}
	}
	rows, _ := conn.Query(ctx, `
WITH sales AS (
	SELECT m.id, m.sku, o.id AS order_id, -m.quantity AS units,
	       sum(-m.quantity) OVER (PARTITION BY m.sku ORDER BY m.id) AS sold,
	       (SELECT quantity FROM proof_opening p WHERE p.sku = m.sku) AS put
	FROM stock_movements m
	JOIN orders o ON o.id = m.order_id AND o.status = 'confirmed'
	WHERE m.kind = 'sale'
), first AS (
	SELECT sku FROM sales WHERE sold > put ORDER BY id LIMIT 1
)
SELECT sku, put, order_id, units::bigint, sold::bigint
FROM sales
WHERE sku = (SELECT sku FROM first)
ORDER BY id`) // ForEachRow returns its error
	o, s, order := oversale{}, sale{}, uuid.UUID{}
	_, err := pgx.ForEachRow(rows, []any{&o.SKU, &o.Put, &order, &s.Units, &s.Sold}, func() error {
		var known bool
		if s.Attempt, known = answered[order]; known {
			o.Sales = append(o.Sales, s)
		}
		return nil
	})
	if err != nil || len(o.Sales) == 0 {
		return nil, err
	}
	return &o, nil
}

// crossing returns the index of the first sale beyond the stock, or of the last sale if
// the answer to that first sale was not recorded.
func (o *oversale) crossing() int {
	if i := slices.IndexFunc(o.Sales, func(s sale) bool { return s.Sold > o.Put }); i >= 0 {
		return i
	}
	return len(o.Sales) - 1
}

// How many sales a story draws.
const (
	salesBefore = 8
	salesAfter  = 6
)

// story shows the first sale beyond the stock among those around it, and counts the sales before it that may have lost an
// update of the stock. nil: nothing was oversold.
func (o *oversale) story(samples []judge.Sample) *loadtest.Story {
	if o == nil {
		return nil
	}
	end := o.crossing()
	asked, shelf := o.Sales[end].Attempt.Start, ""
	if n, seen := shelfAt(samples, o.SKU, asked); seen {
		shelf = fmt.Sprintf("When the first request beyond the stock was sent, %v into the run, the table still showed %d left. ", asked.Round(time.Millisecond), n)
	}
	story := &loadtest.Story{
		Title: "The first sale beyond the stock",
		Text: fmt.Sprintf("There were %d units of %s. Where bars overlap, two replicas sold it at the same moment: "+
			"a replica that reads the stock before the other has written puts back a number without the other's sale. "+
			"%d sales met a sale of another replica like that before the last unit was gone. "+
			"%sSo the shop went on selling:", o.Put, o.SKU, met(o.Sales[:end]), shelf),
	}
	for _, s := range o.Sales[max(0, end-salesBefore):min(len(o.Sales), end+salesAfter)] {
		story.Bars = append(story.Bars, loadtest.Bar{
			Start: s.Attempt.Start, End: s.Attempt.End, Over: s.Sold > o.Put,
			Who:  fmt.Sprintf("replica %d sells %d", s.Attempt.Replica+1, s.Units),
			Then: fmt.Sprintf("%d of %d sold", s.Sold, o.Put),
		})
	}
	return story
}

// met counts the sales that overlapped one on another replica.
func met(sales []sale) (n int) {
	for _, s := range sales {
		a := s.Attempt
		if slices.ContainsFunc(sales, func(other sale) bool {
			b := other.Attempt
			return a.Start < b.End && b.Start < a.End && a.Replica != b.Replica
		}) {
			n++
		}
	}
	return n
}

// shelfAt returns the stock of a product in the last sample before a moment.
func shelfAt(samples []judge.Sample, sku string, at time.Duration) (n int64, seen bool) {
	for _, s := range samples {
		if says, has := s.Level(sku); has && s.At <= at {
			n, seen = says, true
		}
	}
	return n, seen
}
