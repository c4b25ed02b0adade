// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// ErrRunning reports that another race is running on this database.
var ErrRunning = errors.New("lab: a race or a measurement is running; it ends within seconds")

const (
	nameMax  = 63              // bytes of the longest name in PostgreSQL, and of a database in MongoDB
	connsMax = 12              // connections of a replica: each request that waits for a row takes one
	idleMax  = 4 * time.Second // of a transaction: longer than a pause
)

// makeTables makes the tables of a site, empty, in a schema of their own, and returns a URL with that schema.
func makeTables(ctx context.Context, p site, migrate func(ctx context.Context, databaseURL string) error) (string, error) {
	if len(p.name) > nameMax { // PostgreSQL would cut it off, and another schema could have the rest as its name
		return "", fmt.Errorf("lab: the schema %s would have a name of more than %d bytes", p.name, nameMax)
	}
	schema := pgx.Identifier{p.name}.Sanitize()
	laneURL, err := withSchema(p.PostgresURL, schema)
	if err != nil {
		return "", err
	}
	if _, err := p.db.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE; CREATE SCHEMA "+schema); err != nil {
		return "", fmt.Errorf("a race makes schemas of its own: %w", err)
	}
	return laneURL, migrate(ctx, laneURL)
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

// openPool opens a pool, over a link if there is one. Its transactions may be idle for as long as a pause lasts.
func openPool(ctx context.Context, laneURL string, size int, over *link) (*pgxpool.Pool, error) {
	cfg, err := pgtx.PoolConfig(laneURL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(size)
	cfg.ConnConfig.RuntimeParams["application_name"] = "shop race"
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint(idleMax.Milliseconds())
	if over != nil {
		cfg.ConnConfig.DialFunc = over.over(cfg.ConnConfig.DialFunc)
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}
