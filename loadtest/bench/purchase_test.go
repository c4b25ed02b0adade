// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/loadtest/site"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/invariant"
	"shop/locking/redislock"
	"shop/locking/servertest"
	"shop/transfer"
)

// The hot product, and how many others there are. There is enough of each.
const (
	hotSKU = "HOT"
	others = 10_000
)

// preparePostgres makes a database with the products, the accounts and a client of the API.
func preparePostgres(b *testing.B) (p place) {
	ctx := b.Context()
	p.Prefix = newPrefix()
	database, err := site.CreateDatabase(ctx, servertest.Env(b, "SHOP_POSTGRES_URL"), p.Prefix)
	must(b, err)
	b.Cleanup(func() { must(b, database.Drop(context.Background())) })
	p.Postgres = database.URL
	must(b, inventory.Migrate(ctx, p.Postgres))
	must(b, transfer.Migrate(ctx, p.Postgres))
	must(b, api.Migrate(ctx, p.Postgres))
	pool, err := pgxpool.New(ctx, p.Postgres)
	must(b, err)
	defer pool.Close()
	skus := []string{hotSKU}
	for n := range others {
		skus = append(skus, sku(n))
	}
	_, err = pool.Exec(ctx, `
		WITH added AS (
			INSERT INTO products (sku, name, price, currency, stock)
			SELECT sku, sku, 100, 'EUR', 1000000000 FROM unnest($1::text[]) AS sku
			RETURNING sku, stock)
		INSERT INTO stock_movements (sku, kind, quantity)
		SELECT sku, 'opening', stock FROM added`, skus)
	must(b, err)
	_, err = pool.Exec(ctx, `
		INSERT INTO accounts (id, owner_id, currency, opening, balance)
		SELECT id, $2, 'EUR', $3, $3 FROM unnest($1::uuid[]) AS id`, pair[:], owner, int64(1)<<40)
	must(b, err)
	_, p.Key, err = api.AddClient(ctx, pool, "hot", false)
	must(b, err)
	return p
}

func sku(n int) string { return fmt.Sprintf("product-%05d", n) }

// Twice the connections of shop serve, and leases that are longer than its own: none ends while the machine is busy.
const (
	connections = 32
	leaseTTL    = 10 * time.Second
)

// connect opens a pool like that of shop serve.
func connect(ctx context.Context, p place) (*pgxpool.Pool, error) {
	config, err := pgtx.PoolConfig(p.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	if p.explain != nil {
		maps.Copy(config.ConnConfig.RuntimeParams, autoExplain)
		config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { p.explain(n.Message) }
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// purchases opens a Service with the stores that shop serve has. A request buys one unit of the hot product, or of any other.
func purchases(ctx context.Context, t turn) (request func(context.Context) error, done func(), err error) {
	pool, err := connect(ctx, t.Place)
	if err != nil {
		return nil, nil, err
	}
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), leaseTTL)
	if err != nil {
		return nil, nil, err
	}
	store, err := redislock.New(client, leaseTTL, redislock.Options{Prefix: t.Place.Prefix})
	if err != nil {
		return nil, nil, err
	}
	service, err := inventory.New(inventory.Config{Pool: pool, Locks: store, Strategy: t.Strategy, Encode: func(o inventory.Order, err error) (inventory.Reply, error) {
		return encode(o, err, t.Work)
	}})
	if err != nil {
		return nil, nil, err
	}
	request = func(ctx context.Context) error {
		lines := []inventory.Line{{SKU: hotSKU, Quantity: 1}}
		if t.Flow == "many" {
			lines[0].SKU = sku(rand.IntN(others))
		}
		req := idempotency.Request{Client: uuid.New(), Key: uuid.NewString(), Fingerprint: [32]byte{1}}
		return answered(func() error {
			_, err := service.Buy(ctx, req, lines)
			return err
		})
	}
	return request, func() {
		service.Close()
		store.Close()
		_ = client.Close()
		pool.Close()
	}, nil
}

func auditInventory(ctx context.Context, p place) (invariant.Findings, error) {
	return audit(ctx, p, inventory.Invariants.Checks)
}

func audit(ctx context.Context, p place, checks []invariant.Check) (invariant.Findings, error) {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return invariant.Run(ctx, checks, invariant.SQL(conn))
}

// transactions returns how many transactions have made the rows of a table. Rows that one transaction has inserted have one xmin.
func transactions(table string) func(context.Context, place) (int, error) {
	return func(ctx context.Context, p place) (n int, err error) {
		conn, err := pgx.Connect(ctx, p.Postgres)
		if err != nil {
			return 0, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		err = conn.QueryRow(ctx, "SELECT count(DISTINCT xmin::text) FROM "+table).Scan(&n)
		return n, err
	}
}

// inserter inserts one row. Its round trip is to the same machine, so that the sync of the log is most of its time.
func inserter(ctx context.Context, p place) (insert func() error, done func(), err error) {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return nil, nil, err
	}
	_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS commits (n integer)")
	return func() error { _, err := conn.Exec(ctx, "INSERT INTO commits DEFAULT VALUES"); return err },
		func() { _ = conn.Close(context.WithoutCancel(ctx)) }, err
}
