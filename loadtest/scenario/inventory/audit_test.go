// SPDX-License-Identifier: MIT

package inventory

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// The shop of these tests: 10 cups and 10 plates, of which three orders took
// 2 cups, 1 cup and 4 plates, and 3 plates; the last was cancelled. The bowl was
// never ordered: the checks must see it too.
const correctShop = `
INSERT INTO products (sku, name, price, currency, stock) VALUES
	('cup', 'cup', 100, 'EUR', 7), ('plate', 'plate', 200, 'EUR', 6), ('bowl', 'bowl', 300, 'USD', 0);
INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, created_at, cancelled_at) VALUES
	('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000c1', 'k1', 'confirmed', 200, 'EUR', '2026-01-01T00:00:00Z', NULL),
	('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-0000000000c1', 'k2', 'confirmed', 900, 'EUR', '2026-01-01T00:00:00Z', NULL),
	('00000000-0000-0000-0000-000000000003', '00000000-0000-0000-0000-0000000000c1', 'k3', 'cancelled', 600, 'EUR', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00.5Z');
INSERT INTO order_lines (order_id, sku, quantity, unit_price) VALUES
	('00000000-0000-0000-0000-000000000001', 'cup', 2, 100),
	('00000000-0000-0000-0000-000000000002', 'cup', 1, 100),
	('00000000-0000-0000-0000-000000000002', 'plate', 4, 200),
	('00000000-0000-0000-0000-000000000003', 'plate', 3, 200);
INSERT INTO stock_movements (sku, kind, quantity, order_id) VALUES
	('cup', 'opening', 8, NULL), ('cup', 'restock', 2, NULL), ('plate', 'opening', 10, NULL), ('bowl', 'opening', 0, NULL),
	('cup', 'sale', -2, '00000000-0000-0000-0000-000000000001'),
	('cup', 'sale', -1, '00000000-0000-0000-0000-000000000002'),
	('plate', 'sale', -4, '00000000-0000-0000-0000-000000000002'),
	('plate', 'sale', -3, '00000000-0000-0000-0000-000000000003'),
	('plate', 'cancel', 3, '00000000-0000-0000-0000-000000000003');
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
SELECT '00000000-0000-0000-0000-0000000000c1', key, sha256(key::bytea), status, '', '2026-01-01T00:00:00Z'
FROM (VALUES ('k1', 201), ('k2', 201), ('k3', 201), ('k4', 409), ('c3', 201), ('d3', 409)) k (key, status);`

const (
	order1  = "00000000-0000-0000-0000-000000000001"
	order2  = "00000000-0000-0000-0000-000000000002"
	order3  = "00000000-0000-0000-0000-000000000003"
	client  = "00000000-0000-0000-0000-0000000000c1"
	client2 = "00000000-0000-0000-0000-0000000000c2"
)

// put is the stock of correctShop's plan.
var put = []Stock{
	{SKU: "cup", Quantity: 10, Price: 100, Currency: "EUR"},
	{SKU: "plate", Quantity: 10, Price: 200, Currency: "EUR"},
	{SKU: "bowl", Quantity: 0, Price: 300, Currency: "USD"},
}

// some returns a quantity of a product.
func some(sku string, quantity int64) Stock {
	s := put[slices.IndexFunc(put, func(s Stock) bool { return s.SKU == sku })]
	s.Quantity = quantity
	return s
}

const (
	madeAt         = `"created_at":"2026-01-01T00:00:00Z"`
	orderConfirmed = `{"id":"` + order3 + `","status":"confirmed","lines":[{"sku":"plate","quantity":3,"unit_price":200}],"total":600,"currency":"EUR",` + madeAt + `}`
	orderCancelled = `{"id":"` + order3 + `","status":"cancelled","lines":[{"sku":"plate","quantity":3,"unit_price":200}],"total":600,"currency":"EUR",` + madeAt + `,"cancelled_at":"2026-01-01T00:00:00.5Z"}`
	aCup           = `{"sku":"cup","name":"cup","price":100,"currency":"EUR","stock":7}`
	aPlate         = `{"sku":"plate","name":"plate","price":200,"currency":"EUR","stock":6}`
	aBowl          = `{"sku":"bowl","name":"bowl","price":300,"currency":"USD","stock":0}`
)

// epoch is the start of the clock of correctShop's clients, and tick the unit of the times below.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const tick = 50 * time.Millisecond

// correctReplies returns the replies that the clients of correctShop got. The cancelled order
// was read before its cancellation, during it, and after it.
func correctReplies() map[string]traffic.Record {
	records := map[string]traffic.Record{}
	add := func(i traffic.Intent, outcome traffic.Outcome, problem, id, body string, at int) {
		r := traffic.Record{Intent: i, Outcome: outcome, Body: []byte(body)}
		if id != "" {
			r.Made = uuid.MustParse(id)
		}
		r.Attempts = []traffic.Attempt{{Outcome: outcome, Problem: problem, Sends: 1, Start: time.Duration(at) * tick, End: time.Duration(at+1) * tick}}
		records[i.Key] = r
	}
	buy := func(key string, lines ...Stock) traffic.Intent {
		return traffic.Intent{Key: key, Action: Buy, Of: lines}
	}
	third := traffic.Record{Intent: buy("k3", some("plate", 3)), Made: uuid.MustParse(order3)}
	add(buy("k1", some("cup", 2)), traffic.OK, "", order1, `{"id":"`+order1+`","status":"confirmed","lines":[{"sku":"cup","quantity":2,"unit_price":100}],"total":200,"currency":"EUR",`+madeAt+`}`, 1)
	add(buy("k2", some("cup", 1), some("plate", 4)), traffic.OK, "", order2,
		`{"id":"`+order2+`","status":"confirmed","lines":[{"sku":"cup","quantity":1,"unit_price":100},{"sku":"plate","quantity":4,"unit_price":200}],"total":900,"currency":"EUR","created_at":"2026-01-01T01:00:00+01:00"}`, 1)
	add(third.Intent, traffic.OK, "", order3, orderConfirmed, 1)
	add(*cancelIntent("c3", 0, third), traffic.OK, "", order3, orderCancelled, 10)
	add(*cancelIntent("d3", 0, third), traffic.Rejected, "already-cancelled", "", "", 10)
	add(*strangerCancels(third), traffic.Rejected, "not-found", "", "", 10)
	add(buy("k4", some("cup", 99)), traffic.Rejected, "out-of-stock", "", `{"status":409,"sku":"cup","left":7}`, 1)
	add(buy("k5", some("plate", 1)), traffic.Unknown, "", "", "", 1) // it did not happen
	add(buy("k6", some("plate", 1)), traffic.Open, "busy", "", "", 1)
	add(*reusedForCart(records["k1"]), traffic.Rejected, "idempotency-key-reused", "", "", 3)
	add(*readIntent("before", 0, Read{Order: third.Made}), traffic.OK, "", order3, orderConfirmed, 8)
	add(*readIntent("meanwhile", 0, Read{Order: third.Made}), traffic.OK, "", order3, orderCancelled, 10)
	add(*readIntent("after", 0, Read{Order: third.Made}), traffic.OK, "", order3, orderCancelled, 12)
	add(*readIntent("cup", 0, Read{SKU: "cup"}), traffic.OK, "", "", aCup, 1)
	add(*readIntent("all", 0, Read{}), traffic.OK, "", "", `{"products":[`+aBowl+`,`+aCup+`,`+aPlate+`]}`, 1)
	return records
}

// buyers are the clients of correctShop.
var buyers = []loadtest.Credentials{{ID: uuid.MustParse(client)}, {ID: uuid.MustParse(client2)}}

// violation is planted in correctShop by SQL, or by an edit of the clients' replies.
type violation struct {
	check   string // that must find it
	name    string
	sql     string
	replies func(map[string]traffic.Record)
	ids     []string
}

// forgery edits the record of one key.
func forgery(key string, edit func(*traffic.Record)) func(map[string]traffic.Record) {
	return func(records map[string]traffic.Record) {
		r := records[key]
		edit(&r)
		records[key] = r
	}
}

// altered forges an answer by replacing some of its text.
func altered(key, is, becomes string) func(map[string]traffic.Record) {
	return forgery(key, func(r *traffic.Record) { r.Body = []byte(strings.Replace(string(r.Body), is, becomes, 1)) })
}

// endedAs forges an outcome.
func endedAs(key string, outcome traffic.Outcome, problem string) func(map[string]traffic.Record) {
	return forgery(key, func(r *traffic.Record) {
		r.Outcome = outcome
		r.Attempts = []traffic.Attempt{{Outcome: outcome, Problem: problem, Sends: 1}}
	})
}

func forget(key string) func(map[string]traffic.Record) {
	return func(records map[string]traffic.Record) { delete(records, key) }
}

// A service that adds stock of its own, sells it, and keeps consistent books.
const (
	moreOnShelf   = `UPDATE stock_movements SET quantity = 100 WHERE sku = 'bowl'; UPDATE products SET stock = 100 WHERE sku = 'bowl'`
	productBeside = `
INSERT INTO products (sku, name, price, currency, stock) VALUES ('fork', 'Fork', 1, 'EUR', 5);
INSERT INTO stock_movements (sku, kind, quantity) VALUES ('fork', 'opening', 5)`
	restockedAndSold = `UPDATE stock_movements SET quantity = 9 WHERE kind = 'opening' AND sku = 'cup';
INSERT INTO orders (id, client_id, idempotency_key, status, total, currency) VALUES ('00000000-0000-0000-0000-000000000009', '` + client + `', 'k9', 'confirmed', 800, 'EUR');
INSERT INTO order_lines VALUES ('00000000-0000-0000-0000-000000000009', 'cup', 8, 100);
INSERT INTO stock_movements (sku, kind, quantity, order_id) VALUES ('cup', 'sale', -8, '00000000-0000-0000-0000-000000000009');
UPDATE products SET stock = 0 WHERE sku = 'cup'`
)

// keyAgain uses the first key again for the second order, this long after the first.
func keyAgain(gap string) string {
	return `UPDATE orders SET idempotency_key = 'k1', created_at = created_at + interval '` + gap + `' WHERE id = '` + order2 + `';
		UPDATE idempotency_keys SET created_at = created_at + interval '` + gap + `' WHERE key = 'k1';`
}

var violations = []violation{
	{check: "S1 planned", name: "stock and opening both raised", sql: moreOnShelf, ids: []string{"bowl"}},
	{check: "S1 planned", name: "a product that is not in the plan", sql: productBeside, ids: []string{"fork"}},
	{check: "S1 planned", name: "unplanned stock added and sold", sql: restockedAndSold, ids: []string{"cup"}},
	{check: "S1 planned", name: "a missing product", sql: `DELETE FROM stock_movements WHERE sku = 'bowl'; DELETE FROM products WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "I-ONCE orders", name: "two orders of one key within the day for which its answer is kept", sql: keyAgain("22 hours 59 minutes"), ids: []string{client + " k1"}},
	{check: "I-ONCE orders", name: "used again after years, while its answer was still stored", sql: `UPDATE orders SET idempotency_key = 'k1', created_at = created_at + interval '2 years' WHERE id = '` + order2 + `'`, ids: []string{client + " k1"}},
	{check: "S1 lines", name: "lost update: sold, but still in stock", sql: `UPDATE products SET stock = 9 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S1 lines", name: "stock of a product that no order names", sql: `UPDATE products SET stock = 5 WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "S1 lines", name: "units in a slot that no order names", sql: `INSERT INTO stock_slots VALUES ('bowl', 0, 5)`, ids: []string{"bowl"}},
	{check: "S1 lines", name: "stock without any movement", sql: `INSERT INTO products (sku, name, price, currency, stock) VALUES ('fork', 'Fork', 1, 'EUR', 1)`, ids: []string{"fork"}},
	{check: "S1 lines", name: "cancelled, but not returned", sql: `UPDATE products SET stock = 3 WHERE sku = 'plate'`, ids: []string{"plate"}},
	{check: "S1 lines", name: "returned, but not cancelled", sql: `UPDATE orders SET status = 'confirmed', cancelled_at = NULL WHERE id = '` + order3 + `'`, ids: []string{"plate"}},
	{check: "S1 lines", name: "an order that took no stock", sql: `
INSERT INTO orders (id, client_id, idempotency_key, status, total, currency) VALUES ('00000000-0000-0000-0000-000000000009', '` + client + `', 'k9', 'confirmed', 300, 'EUR');
INSERT INTO order_lines VALUES ('00000000-0000-0000-0000-000000000009', 'bowl', 1, 300)`, ids: []string{"bowl"}},
	{check: "S1 movements", name: "a sale without a movement", sql: `DELETE FROM stock_movements WHERE order_id = '` + order1 + `'`, ids: []string{"cup"}},
	{check: "S1 movements", name: "no movement at all", sql: `DELETE FROM stock_movements WHERE sku = 'plate'`, ids: []string{"plate"}},
	{check: "S1 movements", name: "stock changed by hand", sql: `UPDATE products SET stock = stock + 1`, ids: []string{"bowl", "cup", "plate"}},
	{check: "S1 negative", name: "a negative amount", sql: `ALTER TABLE products DROP CONSTRAINT products_stock_check; UPDATE products SET stock = -1 WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "S1 movements", name: "units lost from a slot", sql: `UPDATE products SET stock = 0 WHERE sku = 'cup'; INSERT INTO stock_slots VALUES ('cup', 0, 6)`, ids: []string{"cup"}},
	{check: "S1 negative", name: "a negative amount in a slot", sql: `ALTER TABLE stock_slots DROP CONSTRAINT stock_slots_units_check; INSERT INTO stock_slots VALUES ('bowl', 0, -1)`, ids: []string{"bowl"}},
	{check: "S1 pairs", name: "two errors that cancel out in the sums per product", sql: `
UPDATE stock_movements SET quantity = -1 WHERE order_id = '` + order1 + `';
UPDATE stock_movements SET quantity = -2 WHERE order_id = '` + order2 + `' AND sku = 'cup'`, ids: []string{order1, order2}},
	{check: "S1 pairs", name: "a movement for an order that has no such line", sql: `DELETE FROM order_lines WHERE order_id = '` + order2 + `' AND sku = 'plate'`, ids: []string{order2}},
	{check: "S1 pairs", name: "a line that moved nothing", sql: `DELETE FROM stock_movements WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "S1 pairs", name: "cancelled without a movement", sql: `DELETE FROM stock_movements WHERE kind = 'cancel'`, ids: []string{order3}},
	{check: "I-WHOLE", name: "half an order", sql: `DELETE FROM order_lines WHERE order_id = '` + order2 + `' AND sku = 'cup'`, ids: []string{order2}},
	{check: "I-WHOLE", name: "an order without lines", sql: `DELETE FROM order_lines WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-WHOLE", name: "a free order without lines", sql: `DELETE FROM order_lines WHERE order_id = '` + order1 + `'; UPDATE orders SET total = 0 WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-MAX", name: "more than the limit", sql: `ALTER TABLE purchased DROP CONSTRAINT purchased_within_limit; UPDATE products SET client_max = 3 WHERE sku = 'cup'; UPDATE purchased SET client_max = 2`, ids: []string{"cup " + client}},
	{check: "I-MAX", name: "bought, but not counted", sql: `UPDATE products SET client_max = 9 WHERE sku = 'cup'; DELETE FROM purchased`, ids: []string{"cup " + client}},
	{check: "I-MAX", name: "cancelled, but still counted", sql: `UPDATE products SET client_max = 9 WHERE sku = 'plate'; UPDATE purchased SET units = 7`, ids: []string{"plate " + client}},
	{check: "I-MAX", name: "counted, but never bought", sql: `UPDATE products SET client_max = 9 WHERE sku = 'bowl'; INSERT INTO purchased VALUES ('bowl', '` + client + `', 1, 9)`, ids: []string{"bowl " + client}},
	{check: "I-ONCE orders", name: "two orders of one key", sql: `UPDATE orders SET idempotency_key = 'k1' WHERE id = '` + order2 + `'`, ids: []string{client + " k1"}},
	{check: "I-ONCE answers", name: "bought, but the stored answer is a refusal", sql: `UPDATE idempotency_keys SET status = 409 WHERE key = 'k2'`, ids: []string{client + " k2"}},
	{check: "I-ONCE answers", name: "bought, but without a stored answer", sql: `DELETE FROM idempotency_keys WHERE key = 'k2'; UPDATE orders SET created_at = now() WHERE idempotency_key = 'k2'`, ids: []string{client + " k2"}},
	{check: "S2", name: "more taken than acknowledged", sql: `UPDATE products SET stock = 4 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S2", name: "less taken than acknowledged", sql: `UPDATE products SET stock = 8 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S2", name: "one more than acknowledged and unknown together", sql: `UPDATE products SET stock = 3 WHERE sku = 'plate'`, ids: []string{"plate"}},
	{check: "S2", name: "taken from a product without any answer", sql: `UPDATE products SET stock = 1 WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "S2", name: "a missing product", sql: `DELETE FROM stock_movements WHERE sku = 'bowl'; DELETE FROM products WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "I-ACK bought", name: "acknowledged, but lost", sql: `DELETE FROM stock_movements WHERE order_id = '` + order1 + `'; DELETE FROM order_lines WHERE order_id = '` + order1 + `'; DELETE FROM orders WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ACK bought", name: "acknowledged with another amount", sql: `UPDATE order_lines SET quantity = 1 WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ACK bought", name: "acknowledged to another client", sql: `UPDATE orders SET client_id = gen_random_uuid() WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ACK cancelled", name: "cancellation acknowledged, but still confirmed", sql: `UPDATE orders SET status = 'confirmed', cancelled_at = NULL WHERE id = '` + order3 + `'`, ids: []string{order3}},
	{check: "I-ACK refused", name: "refused as cancelled, but never cancelled", replies: forget("c3"), ids: []string{order3}},
	{check: "I-ONCE cancelled", name: "a second cancellation acknowledged", replies: endedAs("d3", traffic.OK, ""), ids: []string{order3}},
	{check: "I-REJ", name: "refused, but bought", replies: endedAs("k2", traffic.Rejected, "out-of-stock"), ids: []string{order2}},
	{check: "I-REJ", name: "abandoned after busy, but bought", replies: endedAs("k2", traffic.Open, "busy"), ids: []string{order2}},
	{check: "I-REJ", name: "never sent, but bought", replies: forgery("k2", func(r *traffic.Record) { r.Outcome, r.Attempts = traffic.Unknown, nil }), ids: []string{order2}},
	{check: "I-REJ unasked", name: "an order without a request", replies: forget("k2"), ids: []string{order2}},
	{check: "I-REJ unasked", name: "an order of another client", sql: `UPDATE orders SET client_id = '` + client2 + `' WHERE id = '` + order2 + `'`, ids: []string{order2}},
	{check: "I-REJ otherwise", name: "one more than requested", sql: `UPDATE order_lines SET quantity = 3 WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-REJ otherwise", name: "the refused request under the key, not the successful one", sql: `UPDATE order_lines SET quantity = 3 WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-REJ otherwise", name: "a product that was not requested", sql: `INSERT INTO order_lines VALUES ('` + order1 + `', 'bowl', 1, 300)`, ids: []string{order1}},
	{check: "I-REJ cancelled", name: "cancelled without a request", sql: `UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-REJ cancelled", name: "cancelled by another client", replies: func(records map[string]traffic.Record) {
		forget("c3")(records)
		endedAs("steal-k3", traffic.OK, "")(records)
	}, ids: []string{order3}},
	{check: "I-REJ cancelled", name: "abandoned after busy, but cancelled", replies: endedAs("c3", traffic.Open, "busy"), ids: []string{order3}},
	{check: "S3 products", name: "a product that costs nothing", sql: `UPDATE products SET price = 0 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S3 products", name: "dollars instead of euros", sql: `UPDATE products SET currency = 'USD' WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S3 products", name: "another name", sql: `UPDATE products SET name = 'mug' WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S3 products", name: "a product that is not in the plan", sql: productBeside, ids: []string{"fork"}},
	{check: "S3 orders", name: "everything costs nothing", sql: `UPDATE order_lines SET unit_price = 0; UPDATE orders SET total = 0`, ids: []string{order1, order2, order3}},
	{check: "S3 orders", name: "everything costs twice as much", sql: `UPDATE products SET price = 2 * price; UPDATE order_lines SET unit_price = 2 * unit_price; UPDATE orders SET total = 2 * total`, ids: []string{order1, order2, order3}},
	{check: "S3 orders", name: "a total without one of the lines", sql: `UPDATE orders SET total = 100 WHERE id = '` + order2 + `'`, ids: []string{order2}},
	{check: "S3 orders", name: "an order in dollars", sql: `UPDATE orders SET currency = 'USD' WHERE id = '` + order2 + `'`, ids: []string{order2}},
	{check: "I-BODY orders", name: "answered with another price", replies: altered("k1", `"unit_price":100`, `"unit_price":0`), ids: []string{"k1"}},
	{check: "I-BODY orders", name: "answered with another total", replies: altered("k1", `"total":200`, `"total":0`), ids: []string{"k1"}},
	{check: "I-BODY orders", name: "answered with another currency", replies: altered("k1", `EUR`, `USD`), ids: []string{"k1"}},
	{check: "I-BODY orders", name: "answered with another time", replies: altered("k1", `00:00:00Z`, `00:00:01Z`), ids: []string{"k1"}},
	{check: "I-BODY orders", name: "answered with half the order", replies: altered("k2", `{"sku":"cup","quantity":1,"unit_price":100},`, ``), ids: []string{"k2"}},
	{check: "I-BODY orders", name: "answered with an extra field", replies: altered("k1", `"total"`, `"owner":"me","total"`), ids: []string{"k1"}},
	{check: "I-BODY orders", name: "a malformed answer", replies: forgery("k1", func(r *traffic.Record) { r.Body = []byte("<html>") }), ids: []string{"k1"}},
	{check: "I-BODY orders", name: "cancelled, but answered as confirmed", replies: altered("c3", `"status":"cancelled"`, `"status":"confirmed"`), ids: []string{"c3"}},
	{check: "I-BODY orders", name: "read as another order", replies: altered("before", order3, order1), ids: []string{"before"}},
	{check: "I-BODY orders", name: "read with a lower price", replies: altered("after", `"total":600`, `"total":6`), ids: []string{"after"}},
	{check: "I-BODY status", name: "confirmed after its cancellation", replies: forgery("after", func(r *traffic.Record) { r.Body = []byte(orderConfirmed) }), ids: []string{"after"}},
	{check: "I-BODY status", name: "cancelled before that was requested", replies: forgery("before", func(r *traffic.Record) { r.Body = []byte(orderCancelled) }), ids: []string{"before"}},
	{check: "I-BODY status", name: "in an unknown state", replies: altered("after", `"cancelled"`, `"lost"`), ids: []string{"after"}},
	{check: "I-BODY products", name: "read with another price", replies: altered("cup", `"price":100`, `"price":0`), ids: []string{"cup"}},
	{check: "I-BODY products", name: "read with more than the initial stock", replies: altered("cup", `"stock":7`, `"stock":11`), ids: []string{"cup"}},
	{check: "I-BODY products", name: "read with a negative stock", replies: altered("cup", `"stock":7`, `"stock":-1`), ids: []string{"cup"}},
	{check: "I-BODY products", name: "read without its stock", replies: altered("cup", `,"stock":7`, ``), ids: []string{"cup"}},
	{check: "I-BODY products", name: "another product was requested", replies: forgery("cup", func(r *traffic.Record) { r.Body = []byte(aPlate) }), ids: []string{"cup"}},
	{check: "I-BODY products", name: "a product is missing in the list", replies: altered("all", `,`+aPlate, ``), ids: []string{"all"}},
	{check: "I-BODY products", name: "a product is twice in the list", replies: altered("all", aCup, aCup+`,`+aCup), ids: []string{"all"}},
	{check: "I-BODY products", name: "a product in the list is null", replies: altered("all", aPlate, `null`), ids: []string{"all"}},
	{check: "I-BODY products", name: "a product in the list is a text", replies: altered("all", aPlate, `"plate"`), ids: []string{"all"}},
	{check: "I-BODY products", name: "the list is no list", replies: forgery("all", func(r *traffic.Record) { r.Body = []byte("[]") }), ids: []string{"all"}},
}

// look runs one check on a shop, and returns the ids that it finds.
func look(t *testing.T, check invariant.Check, plant violation) []string {
	t.Helper()
	findings, err := invariant.Run(t.Context(), []invariant.Check{check}, invariant.SQL(violated(t, plant)))
	if err != nil {
		t.Fatal(err)
	}
	finding := findings[check.Invariant]
	if finding.Count != int64(len(finding.IDs)) {
		t.Errorf("counted %d, listed %v", finding.Count, finding.IDs)
	}
	return finding.IDs
}

// replies returns the correct replies after an edit.
func replies(edit func(map[string]traffic.Record)) []traffic.Record {
	all := correctReplies()
	if edit != nil {
		edit(all)
	}
	return slices.Collect(maps.Values(all))
}

// violated creates a shop with a violation, and loads its clients' replies.
func violated(t *testing.T, plant violation) *pgx.Conn {
	t.Helper()
	conn := testbed.Schema(t, "inventory")
	testbed.Exec(t, conn, correctShop)
	testbed.Exec(t, conn, plant.sql)
	if err := LoadHistory(t.Context(), conn, put, replies(plant.replies), buyers, epoch); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAudit_FindsEachPlantedViolation(t *testing.T) {
	for _, check := range slices.Concat(inventory.Invariants.Checks, HistoryChecks, BodyChecks) {
		planted := 0
		for _, v := range violations {
			if v.check != check.Name {
				continue
			}
			planted++
			t.Run(v.check+"/"+v.name, func(t *testing.T) {
				if diff := cmp.Diff(v.ids, look(t, check, v)); diff != "" {
					t.Errorf("what the check found (-want +got):\n%s", diff)
				}
			})
		}
		if planted == 0 {
			t.Errorf("no violation is planted for %q", check.Name)
		}
	}
}

func TestAudit_FindsNothingInACorrectShop(t *testing.T) {
	for _, check := range slices.Concat(inventory.Invariants.Checks, HistoryChecks, BodyChecks) {
		t.Run(check.Name, func(t *testing.T) {
			if ids := look(t, check, violation{}); len(ids) != 0 {
				t.Errorf("found %v", ids)
			}
		})
	}
}

func TestAuditInventory_IsZeroInACorrectShopAndCountsUnitsSoldTwice(t *testing.T) {
	conn := testbed.Schema(t, "inventory")
	testbed.Exec(t, conn, correctShop)
	counts, err := inventory.Audit(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"S1": 0, "I-WHOLE": 0, "I-MAX": 0, "I-ONCE": 0, "oversold": 0}, counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// 3 cups and 4 plates are bought. Of a stock of 1 cup and 3 plates, 2 + 1 are sold twice;
	// stock left of other products does not make up for it.
	testbed.Exec(t, conn, `
		DELETE FROM stock_movements WHERE kind = 'restock';
		UPDATE stock_movements SET quantity = 1 WHERE kind = 'opening' AND sku = 'cup';
		UPDATE stock_movements SET quantity = 3 WHERE kind = 'opening' AND sku = 'plate';
		UPDATE stock_movements SET quantity = 50 WHERE kind = 'opening' AND sku = 'bowl'`)
	if counts, err = inventory.Audit(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if counts["oversold"] != 3 {
		t.Errorf("oversold: %d units, want 3", counts["oversold"])
	}
	if counts["S1"] != 3 {
		t.Errorf("S1: %d products, want 3", counts["S1"])
	}
}

// The answer of a key is purged after a day. After that, the key is a new request.
func TestAudit_AKeyMayBeUsedAgainAfterItsAnswerIsPurged(t *testing.T) {
	for name, plant := range map[string]string{
		"done again":            keyAgain("24 hours"),
		"refused the next time": `UPDATE idempotency_keys SET created_at = created_at + interval '24 hours', status = 409 WHERE key = 'k1'`,
	} {
		for _, check := range inventory.Invariants.Checks {
			if ids := look(t, check, violation{sql: plant}); len(ids) != 0 {
				t.Errorf("%s: %s found %v", name, check.Name, ids)
			}
		}
	}
}

func TestOversold_CountsFromThePlansStock(t *testing.T) {
	conn := violated(t, violation{sql: restockedAndSold}) // sells 11 of the plan's 10 cups
	for put, want := range map[string]int64{inventory.Invariants.Numbers[0].Query: 0, oversoldSQL: 1} {
		if n, err := invariant.Number(t.Context(), conn, put); err != nil || n != want {
			t.Errorf("by %q: %d, %v, want %d", put, n, err, want)
		}
	}
}

func TestAudit_AQueryThatCannotRunIsAnErrorNotAPass(t *testing.T) {
	conn := testbed.Schema(t, "inventory")
	testbed.Exec(t, conn, `ALTER TABLE order_lines RENAME TO lines`)
	if counts, err := inventory.Audit(t.Context(), conn); err == nil {
		t.Errorf("no error, but %v", counts)
	}
	if findings, err := invariant.Run(t.Context(), HistoryChecks, invariant.SQL(conn)); err == nil {
		t.Errorf("without a history: no error, but %v", findings)
	}
}

func TestMisreported_ARefusalNamesARequestedProductThatIsShort(t *testing.T) {
	if wrong := misreported(replies(nil)); len(wrong) != 0 {
		t.Errorf("a correct shop: %v", wrong)
	}
	for name, edit := range map[string]func(map[string]traffic.Record){
		"another product":    altered("k4", `"cup"`, `"bowl"`),
		"enough":             altered("k4", `"left":7`, `"left":99`),
		"a negative number":  altered("k4", `"left":7`, `"left":-1`),
		"without the number": altered("k4", `,"left":7`, ``),
		"another status":     altered("k4", `409`, `404`),
		"no text":            forgery("k4", func(r *traffic.Record) { r.Body = nil }),
	} {
		if wrong := misreported(replies(edit)); len(wrong) != 1 || !strings.HasPrefix(wrong[0], "k4: ") {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}
