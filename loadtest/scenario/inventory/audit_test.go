package inventory

import (
	"slices"
	"testing"

	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/locking/invariant"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The shop of these tests: 10 cups and 10 plates, of which three orders took
// 2 cups, 1 cup and 4 plates, and 3 plates; the last was cancelled. A bowl that
// was never touched: the checks must see it too.
const correctShop = `
INSERT INTO products (sku, name, price, currency, stock) VALUES
	('cup', 'Cup', 100, 'EUR', 7), ('plate', 'Plate', 200, 'EUR', 6), ('bowl', 'Bowl', 300, 'EUR', 0);
INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, cancelled_at) VALUES
	('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000c1', 'k1', 'confirmed', 200, 'EUR', NULL),
	('00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-0000000000c1', 'k2', 'confirmed', 900, 'EUR', NULL),
	('00000000-0000-0000-0000-000000000003', '00000000-0000-0000-0000-0000000000c1', 'k3', 'cancelled', 600, 'EUR', now());
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
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body) VALUES
	('00000000-0000-0000-0000-0000000000c1', 'k1', sha256('1'), 201, ''),
	('00000000-0000-0000-0000-0000000000c1', 'k2', sha256('2'), 201, ''),
	('00000000-0000-0000-0000-0000000000c1', 'k3', sha256('3'), 201, ''),
	('00000000-0000-0000-0000-0000000000c1', 'k4', sha256('4'), 409, ''),
	('00000000-0000-0000-0000-0000000000c1', 'c3', sha256('5'), 201, '');`

const (
	order1 = "00000000-0000-0000-0000-000000000001"
	order2 = "00000000-0000-0000-0000-000000000002"
	order3 = "00000000-0000-0000-0000-000000000003"
	client = "00000000-0000-0000-0000-0000000000c1"
)

// correctHistory are the replies that the clients of correctShop got.
func correctHistory() ([]Stock, []Line) {
	id, who := uuid.MustParse, uuid.MustParse(client)
	return []Stock{{"cup", 10}, {"plate", 10}, {"bowl", 0}}, []Line{
		{who, "k1", Buy, id(order1), "cup", 2, loadtest.OK},
		{who, "k2", Buy, id(order2), "cup", 1, loadtest.OK},
		{who, "k2", Buy, id(order2), "plate", 4, loadtest.OK},
		{who, "k3", Buy, id(order3), "plate", 3, loadtest.OK},
		{who, "c3", Cancel, id(order3), "plate", 3, loadtest.OK},
		{who, "k4", Buy, uuid.Nil, "cup", 99, loadtest.Rejected},
		{who, "k5", Buy, uuid.Nil, "plate", 1, loadtest.Unknown}, // and it did not happen
		{who, "k6", Buy, uuid.Nil, "plate", 1, loadtest.Open},
	}
}

// violation is planted by SQL in correctShop, or by an edit of the replies that clients got.
type violation struct {
	check   string // which must find it
	name    string
	sql     string
	replies func([]Line) []Line
	ids     []string
}

// What a service does that sells what was never there and keeps its books.
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

// keyAgain is the first key again, for the second order, so long after the first.
func keyAgain(gap string) string {
	return `UPDATE orders SET idempotency_key = 'k1', created_at = created_at + interval '` + gap + `' WHERE id = '` + order2 + `';
		UPDATE idempotency_keys SET created_at = created_at + interval '` + gap + `' WHERE key = 'k1';`
}

var violations = []violation{
	{check: "S1 planned", name: "stock and opening both raised", sql: moreOnShelf, ids: []string{"bowl"}},
	{check: "S1 planned", name: "a product that was not put there", sql: productBeside, ids: []string{"fork"}},
	{check: "S1 planned", name: "put there on the side, and sold", sql: restockedAndSold, ids: []string{"cup"}},
	{check: "S1 planned", name: "the product is gone", sql: `DELETE FROM stock_movements WHERE sku = 'bowl'; DELETE FROM products WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "I-ONCE orders", name: "two orders of one key, within the day for which its answer is kept", sql: keyAgain("22 hours 59 minutes"), ids: []string{client + " k1"}},
	{check: "I-ONCE orders", name: "used again after years, and its answer was still there", sql: `UPDATE orders SET idempotency_key = 'k1', created_at = created_at + interval '2 years' WHERE id = '` + order2 + `'`, ids: []string{client + " k1"}},
	{check: "S1 lines", name: "lost update: sold, and still on the shelf", sql: `UPDATE products SET stock = 9 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S1 lines", name: "stock of a product that no order names", sql: `UPDATE products SET stock = 5 WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "S1 lines", name: "stock without any movement", sql: `INSERT INTO products (sku, name, price, currency, stock) VALUES ('fork', 'Fork', 1, 'EUR', 1)`, ids: []string{"fork"}},
	{check: "S1 lines", name: "cancelled, and not given back", sql: `UPDATE products SET stock = 3 WHERE sku = 'plate'`, ids: []string{"plate"}},
	{check: "S1 lines", name: "given back, and not cancelled", sql: `UPDATE orders SET status = 'confirmed', cancelled_at = NULL WHERE id = '` + order3 + `'`, ids: []string{"plate"}},
	{check: "S1 lines", name: "an order that took nothing from the shelf", sql: `
INSERT INTO orders (id, client_id, idempotency_key, status, total, currency) VALUES ('00000000-0000-0000-0000-000000000009', '` + client + `', 'k9', 'confirmed', 300, 'EUR');
INSERT INTO order_lines VALUES ('00000000-0000-0000-0000-000000000009', 'bowl', 1, 300)`, ids: []string{"bowl"}},
	{check: "S1 movements", name: "a sale without a movement", sql: `DELETE FROM stock_movements WHERE order_id = '` + order1 + `'`, ids: []string{"cup"}},
	{check: "S1 movements", name: "no movement at all", sql: `DELETE FROM stock_movements WHERE sku = 'plate'`, ids: []string{"plate"}},
	{check: "S1 movements", name: "stock changed by hand", sql: `UPDATE products SET stock = stock + 1`, ids: []string{"bowl", "cup", "plate"}},
	{check: "S1 negative", name: "less than nothing", sql: `ALTER TABLE products DROP CONSTRAINT products_stock_check; UPDATE products SET stock = -1 WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "S1 pairs", name: "two wrongs that add up: the sums per product agree", sql: `
UPDATE stock_movements SET quantity = -1 WHERE order_id = '` + order1 + `';
UPDATE stock_movements SET quantity = -2 WHERE order_id = '` + order2 + `' AND sku = 'cup'`, ids: []string{order1, order2}},
	{check: "S1 pairs", name: "a movement for an order that has no such line", sql: `DELETE FROM order_lines WHERE order_id = '` + order2 + `' AND sku = 'plate'`, ids: []string{order2}},
	{check: "S1 pairs", name: "a line that moved nothing", sql: `DELETE FROM stock_movements WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "S1 pairs", name: "cancelled, and not moved back", sql: `DELETE FROM stock_movements WHERE kind = 'cancel'`, ids: []string{order3}},
	{check: "I-WHOLE", name: "half an order", sql: `DELETE FROM order_lines WHERE order_id = '` + order2 + `' AND sku = 'cup'`, ids: []string{order2}},
	{check: "I-WHOLE", name: "an order without lines", sql: `DELETE FROM order_lines WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-WHOLE", name: "a free order without lines", sql: `DELETE FROM order_lines WHERE order_id = '` + order1 + `'; UPDATE orders SET total = 0 WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ONCE orders", name: "two orders of one key", sql: `UPDATE orders SET idempotency_key = 'k1' WHERE id = '` + order2 + `'`, ids: []string{client + " k1"}},
	{check: "I-ONCE answers", name: "bought, and refused for ever after", sql: `UPDATE idempotency_keys SET status = 409 WHERE key = 'k2'`, ids: []string{client + " k2"}},
	{check: "I-ONCE answers", name: "bought, and the key does not know it", sql: `DELETE FROM idempotency_keys WHERE key = 'k2'`, ids: []string{client + " k2"}},
	{check: "S2", name: "more left the shelf than was told", sql: `UPDATE products SET stock = 4 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S2", name: "less left the shelf than was told", sql: `UPDATE products SET stock = 8 WHERE sku = 'cup'`, ids: []string{"cup"}},
	{check: "S2", name: "one more than even the unknown explain", sql: `UPDATE products SET stock = 3 WHERE sku = 'plate'`, ids: []string{"plate"}},
	{check: "S2", name: "taken from a product that no client was told of", sql: `UPDATE products SET stock = 1 WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "S2", name: "the product is gone", sql: `DELETE FROM stock_movements WHERE sku = 'bowl'; DELETE FROM products WHERE sku = 'bowl'`, ids: []string{"bowl"}},
	{check: "I-ACK bought", name: "acknowledged, and lost", sql: `DELETE FROM stock_movements WHERE order_id = '` + order1 + `'; DELETE FROM order_lines WHERE order_id = '` + order1 + `'; DELETE FROM orders WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ACK bought", name: "acknowledged with another amount", sql: `UPDATE order_lines SET quantity = 1 WHERE order_id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ACK bought", name: "acknowledged to another client", sql: `UPDATE orders SET client_id = gen_random_uuid() WHERE id = '` + order1 + `'`, ids: []string{order1}},
	{check: "I-ACK cancelled", name: "cancelled, and still sold", sql: `UPDATE orders SET status = 'confirmed', cancelled_at = NULL WHERE id = '` + order3 + `'`, ids: []string{order3}},
	{check: "I-REJ", name: "refused, and bought all the same", replies: func(lines []Line) []Line { lines[0].Outcome = loadtest.Rejected; return lines }, ids: []string{order1}},
	{check: "I-REJ unasked", name: "an order that no client asked for", replies: func(lines []Line) []Line { return lines[1:] }, ids: []string{order1}},
}

// look runs one check over a shop, and gives the ids that it found.
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

// violated is a shop with a violation, and with the replies that its clients got.
func violated(t *testing.T, plant violation) *pgx.Conn {
	t.Helper()
	conn := testbed.Schema(t, "inventory")
	testbed.Exec(t, conn, correctShop)
	testbed.Exec(t, conn, plant.sql)
	opening, lines := correctHistory()
	if plant.replies != nil {
		lines = plant.replies(lines)
	}
	if err := LoadHistory(t.Context(), conn, opening, lines); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAudit_FindsEachPlantedViolation(t *testing.T) {
	for _, check := range slices.Concat(inventory.Invariants.Checks, HistoryChecks) {
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
			t.Errorf("nothing is planted for %q: it is not known to find anything", check.Name)
		}
	}
}

func TestAudit_FindsNothingInACorrectShop(t *testing.T) {
	for _, check := range slices.Concat(inventory.Invariants.Checks, HistoryChecks) {
		t.Run(check.Name, func(t *testing.T) {
			if ids := look(t, check, violation{}); len(ids) != 0 {
				t.Errorf("found %v", ids)
			}
		})
	}
}

func TestAuditInventory_IsAllZeroInACorrectShopAndCountsUnitsSoldTwice(t *testing.T) {
	conn := testbed.Schema(t, "inventory")
	testbed.Exec(t, conn, correctShop)
	counts, err := inventory.Audit(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"S1": 0, "I-WHOLE": 0, "I-ONCE": 0, "oversold": 0}, counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// 3 cups and 4 plates are bought. With 1 cup and 3 plates ever put there, 2 + 1 are sold twice;
	// what is left of other products does not make up for it.
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

// Its answer is purged after a day. What comes under it then is a new request.
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

func TestOversold_CountsFromWhatThePlanPutThere(t *testing.T) {
	conn := violated(t, violation{sql: restockedAndSold}) // 11 of the plan's 10 cups
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
		t.Errorf("no history was loaded: no error, but %v", findings)
	}
}

func TestLines_HaveARowForEachProductOfEachKey(t *testing.T) {
	who, order := uuid.New(), uuid.New()
	records := []loadtest.Record{
		{Intent: loadtest.Intent{Key: "k", Action: Buy, Of: []Stock{{"a", 1}, {"b", 2}}}, Outcome: loadtest.OK, Made: order},
		{Intent: loadtest.Intent{Key: "c", Action: Cancel, Of: []Stock{{"a", 1}}}, Outcome: loadtest.Unknown},
	}
	want := []Line{
		{who, "k", Buy, order, "a", 1, loadtest.OK},
		{who, "k", Buy, order, "b", 2, loadtest.OK},
		{who, "c", Cancel, uuid.Nil, "a", 1, loadtest.Unknown},
	}
	if diff := cmp.Diff(want, lines(records, who)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
