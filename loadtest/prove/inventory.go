package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
)

// inventoryReplica sells stock with the scenario's strategy.
func (e *environment) inventoryReplica(p *loadtest.Program, s loadtest.Scenario, databaseURL, lockPrefix string) error {
	redisURL := e.settings.RedisURL
	if s.Fault == loadtest.RedisDown {
		server, err := e.server("redis")
		if err != nil {
			return err
		}
		redisURL = server.Env["SHOP_REDIS_URL"]
	}
	p.Args = func(_ int, listen, metrics string) []string {
		return append(e.serve(listen, metrics, lockPrefix, redisURL),
			"--strategy", s.Strategy, "--transfer-strategy", "row", "--mongo-url=",
			"--postgres-url", databaseURL, "--etcd-endpoints", e.settings.Etcd,
			"--lock-ttl", lockTTLs["inventory"].String(),
			"--failpoint", "inventory/after-guard=exp:"+widening.String())
	}
	return nil
}

// inventoryFault breaks replicas, Redis, or what is in it.
func (e *environment) inventoryFault(s loadtest.Scenario, replicas *loadtest.Replicas, lockPrefix string) (fault.Fault, error) {
	switch s.Fault {
	case loadtest.Crash:
		return fault.Crash{Victims: replicas, Times: 6}, nil
	case loadtest.LockLost:
		options, err := redis.ParseURL(e.settings.RedisURL)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(options)
		e.closing = append(e.closing, func() { _ = client.Close() })
		return fault.LockLost{Client: client, Prefix: lockPrefix, Every: 2 * time.Millisecond}, nil
	case loadtest.RedisDown:
		server, err := e.server("redis")
		return fault.Down{Name: "redis", Server: server, Part: 0.5}, err
	}
	return nil, fmt.Errorf("no such fault: %q", s.Fault)
}

// stockShelves puts the plan's products on sale, and makes one buyer.
func stockShelves(ctx context.Context, pool *pgxpool.Pool, plan loadtest.Plan) ([]loadtest.Credentials, error) {
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	for _, s := range plan.Stock {
		product := inventory.Product{SKU: s.SKU, Name: s.SKU, Price: 1000, Currency: "EUR", Stock: s.Quantity}
		if _, err := service.AddProduct(ctx, product); err != nil {
			return nil, err
		}
	}
	id, key, err := api.AddClient(ctx, pool, "buyer", false)
	return []loadtest.Credentials{{ID: id, Key: key}}, err
}
