// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/loadtest"
	inventoryflow "shop/loadtest/scenario/inventory"
	"shop/loadtest/site"
)

// inventoryReplica completes a program whose replicas sell stock with the scenario's strategy.
func (e *environment) inventoryReplica(t *loadtest.Trial, p *site.Program) error {
	s := t.Scenario
	own := s.Setup()
	if own.Redis == loadtest.RedisSentinel { // new servers, whose first member is the master
		if err := e.retire(context.Background(), own.Redis); err != nil {
			return err
		}
	}
	redisURL, err := e.redisURL(s)
	if err != nil {
		return err
	}
	e.closeProxies()
	redisURLs, err := e.linked(s, "redis", slices.Repeat([]string{redisURL}, e.settings.Replicas))
	if err != nil {
		return err
	}
	urls, err := e.linked(s, "postgres", slices.Repeat([]string{t.Postgres}, e.settings.Replicas))
	if err != nil {
		return err
	}
	ttl := cmp.Or(own.TTL, t.TTL())
	if own.TTL > 0 {
		for n := range urls {
			urls[n] = setting(urls[n], "idle_in_transaction_session_timeout", "0") // else a paused replica would have no transaction to go on with
		}
	}
	if own.Async {
		for n := range urls {
			urls[n] = setting(urls[n], "synchronous_commit", "off")
		}
	}
	p.Args = func(n int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, t.Prefix, redisURLs[n]), []string{
			"--strategy", s.Strategy, "--transfer-strategy", "row", "--mongo-url=",
			"--postgres-url", urls[n], "--etcd-endpoints", e.settings.Etcd, "--lock-ttl", ttl.String(),
		}, widened(s, "inventory/after-guard", own.Guard))
	}
	return nil
}

// setting returns the URL of a database with a setting of its sessions.
func setting(database, name, value string) string {
	u, err := url.Parse(database)
	if err != nil {
		return database // the replica reports it
	}
	settings := u.Query()
	settings.Set(name, value)
	u.RawQuery = settings.Encode()
	return u.String()
}

// stockShelves creates the plan's products and buyers.
func stockShelves(ctx context.Context, pool *pgxpool.Pool, t *loadtest.Trial) ([]loadtest.Credentials, error) {
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	for _, s := range inventoryflow.Products(t.Plan) {
		product := inventory.Product{SKU: s.SKU, Name: s.SKU, Price: s.Price, Currency: s.Currency, Stock: s.Quantity}
		if s.ClientMax > 0 {
			product.ClientMax = &s.ClientMax
		}
		if _, err := service.AddProduct(ctx, product); err != nil {
			return nil, err
		}
	}
	return addClients(ctx, pool, t)
}
