// SPDX-License-Identifier: MIT

package inventory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// BodyChecks compare the answers of successes, field by field, with the plan and the tables.
var BodyChecks = []invariant.Check{
	{
		// A read may show the order before or after its cancellation: the next check compares the times.
		Name: "I-BODY orders", Invariant: "I-BODY",
		Means: "answer with an order that differs from the table or from the plan's prices",
		Query: `
SELECT summary.name
FROM proof_summaries summary
LEFT JOIN orders o ON o.id = summary.order_id AND o.client_id = summary.client_id
LEFT JOIN LATERAL (SELECT jsonb_agg(jsonb_build_object('sku', l.sku, 'quantity', l.quantity, 'unit_price', p.price) ORDER BY l.sku) AS lines,
                          sum(l.quantity * p.price) AS total, min(p.currency) AS currency
                   FROM order_lines l
                   LEFT JOIN proof_opening p ON p.sku = l.sku
                   WHERE l.order_id = o.id) want ON true
LEFT JOIN LATERAL (SELECT CASE summary.action WHEN 'buy' THEN 'confirmed' WHEN 'cancel' THEN 'cancelled' ELSE summary.answer ->> 'status' END AS status) seen ON true
WHERE summary.action IN ('buy', 'cancel', 'read-order') AND summary.outcome = 'ok'
  AND summary.answer IS DISTINCT FROM jsonb_strip_nulls(jsonb_build_object(
      'id', o.id, 'status', seen.status, 'lines', want.lines, 'total', want.total, 'currency', want.currency,
      'created_at', to_char(o.created_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `),
      'cancelled_at', CASE seen.status WHEN 'cancelled' THEN to_char(o.cancelled_at AT TIME ZONE 'UTC', ` + traffic.MomentSQL + `) END))`,
	},
	{
		// By the clock of the clients: begun is before the request was sent, answered after its answer.
		Name: "I-BODY status", Invariant: "I-BODY",
		Means: "read that shows an order as cancelled before its cancellation was requested, or as confirmed after that was acknowledged",
		Query: `
SELECT summary.name
FROM proof_summaries summary
LEFT JOIN (SELECT order_id, client_id,
                  min(begun) FILTER (WHERE outcome <> 'rejected') AS asked,
                  min(answered) FILTER (WHERE outcome = 'ok') AS done
           FROM proof_summaries
           WHERE action = 'cancel'
           GROUP BY order_id, client_id) cancel ON cancel.order_id = summary.order_id AND cancel.client_id = summary.client_id
WHERE summary.action = 'read-order' AND summary.outcome = 'ok'
  AND CASE summary.answer ->> 'status'
      WHEN 'cancelled' THEN cancel.asked IS NULL OR cancel.asked > summary.answered
      WHEN 'confirmed' THEN cancel.done < summary.begun
      ELSE true END`,
	},
	{
		Name: "I-BODY products", Invariant: "I-BODY",
		Means: "read with a product that differs from the plan, or with a stock below 0 or above the initial stock",
		Query: `
SELECT DISTINCT seen.name
FROM proof_shown seen
LEFT JOIN proof_opening opening ON opening.sku = seen.sku
WHERE seen.shown - 'stock' IS DISTINCT FROM jsonb_build_object('sku', opening.sku, 'name', opening.sku, 'price', opening.price, 'currency', opening.currency)
                                       || CASE WHEN opening.client_max > 0 THEN jsonb_build_object('limit_per_client', opening.client_max) ELSE '{}' END
   OR CASE jsonb_typeof(seen.shown -> 'stock')
      WHEN 'number' THEN (seen.shown ->> 'stock')::numeric NOT BETWEEN 0 AND opening.quantity
      ELSE true END`,
	},
}

// shownSQL creates a view of the products in the answers to reads, each with the product of the plan at the same place: a
// list must have exactly the products of the plan, in order of their SKUs. Either may be missing.
const shownSQL = `
CREATE OR REPLACE TEMPORARY VIEW proof_shown AS
SELECT name, sku, answer AS shown
FROM proof_summaries
WHERE action = 'read-product' AND outcome = 'ok'
UNION ALL
SELECT summary.name, place.sku, CASE jsonb_typeof(place.shown) WHEN 'object' THEN place.shown ELSE '{}' END
FROM proof_summaries summary
CROSS JOIN LATERAL (SELECT opening.sku, item.shown
                    FROM (SELECT sku, row_number() OVER (ORDER BY sku COLLATE "C") AS n FROM proof_opening) opening
                    FULL JOIN jsonb_path_query(summary.answer, '$.products[*]') WITH ORDINALITY item (shown, n) ON item.n = opening.n) place
WHERE summary.action = 'read-products' AND summary.outcome = 'ok'`

// misreported lists the refusals for lack of stock whose body names a product that was not
// requested, or one of which enough is left.
func misreported(records []traffic.Record) (wrong []string) {
	for _, r := range records {
		if !r.Refused("out-of-stock") {
			continue
		}
		var answer struct {
			SKU    string
			Status int
			Left   *int64
		}
		_ = json.Unmarshal(r.Body, &answer) // a malformed body names no product
		short := slices.ContainsFunc(cart(r.Intent), func(l Stock) bool {
			return l.SKU == answer.SKU && answer.Left != nil && *answer.Left >= 0 && *answer.Left < l.Quantity
		})
		if !short || answer.Status != http.StatusConflict {
			wrong = append(wrong, fmt.Sprintf("%s: %s", r.Key, strings.TrimSpace(string(r.Body))))
		}
	}
	return wrong
}
