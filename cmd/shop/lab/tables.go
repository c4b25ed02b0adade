package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking/idempotency/pgtx"
	"shop/locking/invariant"
)

// ErrRunning reports that another race is running on this database.
var ErrRunning = errors.New("lab: a race or a measurement is running; it ends within seconds")

// nameMax is the longest name in PostgreSQL, in bytes.
const nameMax = 63

// makeTables makes the tables of a lane in their own schema, empty, and returns a URL with that schema.
func makeTables(ctx context.Context, db *pgxpool.Pool, databaseURL, schema string) (string, error) {
	if len(schema) > nameMax { // PostgreSQL would cut it off, and another schema could have the rest as its name
		return "", fmt.Errorf("lab: the schema %s would have a name of more than %d bytes", schema, nameMax)
	}
	laneURL, err := withSchema(databaseURL, pgx.Identifier{schema}.Sanitize())
	if err != nil {
		return "", err
	}
	if _, err := db.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize()); err != nil {
		return "", fmt.Errorf("a race makes schemas of its own: %w", err)
	}
	if err := inventory.Migrate(ctx, laneURL); err != nil {
		return "", err
	}
	var list []string
	for _, table := range []string{"products", "orders", "order_lines", "stock_movements", "idempotency_keys"} {
		list = append(list, pgx.Identifier{schema, table}.Sanitize())
	}
	_, err = db.Exec(ctx, "TRUNCATE "+strings.Join(list, ", "))
	return laneURL, err
}

// withSchema sets the search_path of a URL.
func withSchema(databaseURL, schema string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Scheme == "" {
		return "", pgtx.ErrURL
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// openPool opens a pool. Its transactions may be idle for as long as the fault Pause lasts.
func openPool(ctx context.Context, laneURL string, size int) (*pgxpool.Pool, error) {
	cfg, err := pgtx.PoolConfig(laneURL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(size)
	cfg.ConnConfig.RuntimeParams["application_name"] = "shop race"
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint((2 * pauseTime).Milliseconds())
	return pgxpool.NewWithConfig(ctx, cfg)
}

// Stock is what the tables of a lane say.
type Stock struct {
	Opening int64 `json:"opening"`
	Sold    int64 `json:"sold"` // units in confirmed orders
	Left    int64 `json:"left"` // the product's stock
}

// count counts the orders of a lane. One statement sees one snapshot.
func count(ctx context.Context, db *pgxpool.Pool, sku string) (s Stock, err error) {
	err = db.QueryRow(ctx, `
		SELECT (SELECT COALESCE(sum(quantity), 0) FROM stock_movements WHERE sku = $1 AND kind = 'opening'),
		       (SELECT COALESCE(sum(l.quantity), 0)
		        FROM order_lines l
		        JOIN orders o ON o.id = l.order_id
		        WHERE l.sku = $1 AND o.status = 'confirmed'),
		       (SELECT stock FROM products WHERE sku = $1)`, sku).Scan(&s.Opening, &s.Sold, &s.Left)
	return s, err
}

// Verdict is what the tables say after the race.
type Verdict struct {
	Stock
	Oversold int64            `json:"oversold"`
	Broken   map[string]int64 `json:"broken"` // invariant → violations, if there are any
	Holds    bool             `json:"holds"`  // no invariant is broken
	Text     string           `json:"text"`
}

// judge recounts what was sold, and runs the audit of the lesson.
func judge(ctx context.Context, db *pgxpool.Pool, sku string) (v Verdict, err error) {
	if v.Stock, err = count(ctx, db, sku); err != nil {
		return v, err
	}
	v.Oversold, v.Broken = max(0, v.Sold-v.Opening), map[string]int64{}
	found, err := inventory.Audit(ctx, db)
	for name, n := range found {
		if n > 0 {
			v.Broken[invariant.Find(inventory.Invariants.Invariants, name).String()] = n
		}
	}
	v.Holds = len(v.Broken) == 0
	v.Text = v.text()
	return v, err
}

func (v Verdict) text() string {
	sold := fmt.Sprintf("sold %d of %d", v.Sold, v.Opening)
	switch {
	case v.Oversold == 1:
		return sold + ": 1 customer will be disappointed"
	case v.Oversold > 1:
		return fmt.Sprintf("%s: %d customers will be disappointed", sold, v.Oversold)
	case !v.Holds:
		return fmt.Sprintf("%s, but the stock says that %d are left: updates were lost", sold, v.Left)
	case v.Sold < v.Opening:
		return sold + " when the time was over, and no unit twice"
	}
	return sold
}
