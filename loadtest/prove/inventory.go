package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"shop/loadtest/fault/redisfault"
	inventoryflow "shop/loadtest/scenario/inventory"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
)

// inventoryReplica completes a program whose replicas sell stock with the scenario's strategy.
func (e *environment) inventoryReplica(t *loadtest.Trial, p *loadtest.Program) error {
	s := t.Scenario
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
	p.Args = func(n int, listen, metrics string) []string {
		return append(e.serve(listen, metrics, t.Prefix, redisURLs[n]),
			"--strategy", s.Strategy, "--transfer-strategy", "row", "--mongo-url=",
			"--postgres-url", urls[n], "--etcd-endpoints", e.settings.Etcd,
			"--lock-ttl", lockTTLs["inventory"].String(),
			"--failpoint", "inventory/after-guard=exp:"+widening.String())
	}
	return nil
}

// redisURL returns the URL of the shared server, or of a private one for a scenario that kills it.
func (e *environment) redisURL(s loadtest.Scenario) (string, error) {
	if s.Fault != inventoryflow.RedisDown && s.Fault != loadtest.Nemesis && s.Fault != loadtest.Soak {
		return e.settings.RedisURL, nil
	}
	return e.privateURL("redis")
}

// redis returns a client for the faults and the evidence of a scenario.
func (e *environment) redis(s loadtest.Scenario) (*redis.Client, error) {
	url, err := e.redisURL(s)
	if err != nil {
		return nil, err
	}
	if client := e.redises[url]; client != nil {
		return client, nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	if e.redises == nil {
		e.redises = map[string]*redis.Client{}
	}
	e.redises[url] = client
	e.closing = append(e.closing, func() { _ = client.Close() })
	return client, nil
}

// redisWitness counts the requests to Redis for locks.
func (e *environment) redisWitness(ctx context.Context, t *loadtest.Trial) (loadtest.Witness, error) {
	client, err := e.redis(t.Scenario)
	if err != nil {
		return nil, err
	}
	calls, err := redisfault.CountCalls(ctx, client)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ []fault.Event) (map[string]int64, error) {
		all, after, err := calls.Stop(ctx)
		return map[string]int64{"lock_calls": all, "lock_calls_after": after}, err
	}, nil
}

// inventoryFault returns a fault of Redis: its locks are deleted, or it is killed.
func (e *environment) inventoryFault(t *loadtest.Trial) (fault.Fault, error) {
	switch t.Scenario.Fault {
	case inventoryflow.LockLost:
		client, err := e.redis(t.Scenario)
		if err != nil {
			return nil, err
		}
		return redisfault.LockLost{Client: client, Prefix: t.Prefix, Every: 2 * time.Millisecond}, nil
	case inventoryflow.RedisDown:
		server, err := e.server("redis")
		return fault.Restart{Server: server, Name: "redis", Evidence: "redis_kills", Times: 1, Dead: 0.5}, err
	}
	return nil, fmt.Errorf("no such fault: %q", t.Scenario.Fault)
}

// stockShelves creates the plan's products and buyers.
func stockShelves(ctx context.Context, pool *pgxpool.Pool, t *loadtest.Trial) ([]loadtest.Credentials, error) {
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	for _, s := range inventoryflow.Products(t.Plan) {
		product := inventory.Product{SKU: s.SKU, Name: s.SKU, Price: s.Price, Currency: s.Currency, Stock: s.Quantity}
		if _, err := service.AddProduct(ctx, product); err != nil {
			return nil, err
		}
	}
	return addClients(ctx, pool, t)
}
