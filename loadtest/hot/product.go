// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/locking/redislock"
)

// The hot product, and how many others there are. There is enough of each.
const (
	hot    = "HOT"
	others = 10_000
)

func stock(ctx context.Context, p place) error {
	pool, err := pgxpool.New(ctx, p.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	skus := []string{hot}
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
	return err
}

func sku(n int) string { return fmt.Sprintf("product-%05d", n) }

// shop opens a Service with the stores that shop serve has.
func shop(ctx context.Context, p place, strategy string, work time.Duration) (*inventory.Service, func(), error) {
	pool, err := connect(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), ttl)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	store, err := redislock.New(client, ttl, redislock.Options{Prefix: p.Prefix})
	if err != nil {
		_ = client.Close()
		pool.Close()
		return nil, nil, err
	}
	service, err := inventory.New(inventory.Config{Pool: pool, Locks: store, Strategy: strategy, Encode: func(o inventory.Order, err error) (inventory.Reply, error) {
		return encode(o, err, work)
	}})
	return service, func() {
		service.Close()
		store.Close()
		_ = client.Close()
		pool.Close()
	}, err
}

// purchases returns a function that buys one unit of the hot product, or of any other.
func purchases(service *inventory.Service, many bool) func(context.Context) error {
	return func(ctx context.Context) error {
		lines := []inventory.Line{{SKU: hot, Quantity: 1}}
		if many {
			lines[0].SKU = sku(rand.IntN(others))
		}
		req := idempotency.Request{Client: uuid.New(), Key: uuid.NewString(), Fingerprint: [32]byte{1}}
		return answered(func() error {
			_, err := service.Buy(ctx, req, lines)
			return err
		})
	}
}
