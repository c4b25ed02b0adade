// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"shop/loadtest/fault/redisfault"
	"shop/loadtest/fault/replicafault"
	inventoryflow "shop/loadtest/scenario/inventory"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
)

// inventoryReplica completes a program whose replicas sell stock with the scenario's strategy.
func (e *environment) inventoryReplica(t *loadtest.Trial, p *loadtest.Program) error {
	s := t.Scenario
	if s.Fault == inventoryflow.RedisFailover { // new servers, whose first member is the master
		if err := e.retire(context.Background(), "redis-sentinel"); err != nil {
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
	ttl, pause, timeout := lockTTLs["inventory"], widening, []string(nil)
	switch s.Fault {
	case inventoryflow.RedisFailover:
		ttl, pause, timeout = failoverTTL, 30*widening, []string{"--request-timeout", failoverTTL.String()}
		for n := range urls {
			urls[n] = unhurried(urls[n])
		}
	case loadtest.HangUp:
		pause = 20 * widening
	}
	p.Args = func(n int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, t.Prefix, redisURLs[n]), []string{
			"--strategy", s.Strategy, "--transfer-strategy", "row", "--mongo-url=",
			"--postgres-url", urls[n], "--etcd-endpoints", e.settings.Etcd,
			"--lock-ttl", ttl.String(), "--failpoint", "inventory/after-guard=exp:" + pause.String(),
		}, timeout)
	}
	return nil
}

// failoverTTL is the TTL of locks under redis-failover. A third of it, after which a lease is renewed, is
// longer than a failover: else the paused replica would learn at once that its lease is lost. It is the time limit of
// requests too: else the paused replica would end its request instead of going on with it.
const failoverTTL = 18 * time.Second

// unhurried returns the URL of a database that does not end the transactions of paused replicas: else a replica
// that is paused for as long as a failover takes would have none to go on with.
func unhurried(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return database // the replica reports it
	}
	settings := u.Query()
	settings.Set("idle_in_transaction_session_timeout", "0")
	u.RawQuery = settings.Encode()
	return u.String()
}

// redisURL returns the URL of the shared server, or of a private one for a scenario that kills it.
func (e *environment) redisURL(s loadtest.Scenario) (string, error) {
	switch s.Fault {
	case inventoryflow.RedisFailover:
		return e.privateURL("redis-sentinel")
	case inventoryflow.RedisDown, loadtest.Nemesis:
		return e.privateURL("redis")
	}
	return e.settings.RedisURL, nil
}

// redis returns a client for the faults and the evidence of a scenario.
func (e *environment) redis(s loadtest.Scenario) (*redis.Client, error) {
	url, err := e.redisURL(s)
	if err != nil {
		return nil, err
	}
	return e.redisAt(url)
}

func (e *environment) redisAt(url string) (*redis.Client, error) {
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

// redisMonitor counts the requests to Redis for locks.
func (e *environment) redisMonitor(ctx context.Context, t *loadtest.Trial) (loadtest.Monitor, error) {
	calls, err := e.countCalls(ctx, t)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ []fault.Event) (map[string]int64, error) {
		all, after, err := calls.Stop(ctx)
		return map[string]int64{"lock_calls": all, "lock_calls_after": after}, err
	}, nil
}

// redisFigures counts the connections of others to Redis, and the locks.
func (e *environment) redisFigures(ctx context.Context, t *loadtest.Trial, idle map[string]int64) ([]loadtest.Figure, error) {
	client, err := e.redis(t.Scenario)
	if err != nil {
		return nil, err
	}
	locks, err := redisfault.Leftovers(ctx, client, t.Prefix)
	if err != nil {
		return nil, err
	}
	info, err := client.InfoMap(ctx, "clients").Result()
	if err != nil {
		return nil, err
	}
	connections, err := strconv.ParseInt(info["Clients"]["connected_clients"], 10, 64)
	return []loadtest.Figure{
		{Name: "Redis: connections", After: connections - int64(client.PoolStats().TotalConns) - idle["redis"], Slack: 6},
		{Name: "Redis: locks", After: int64(len(locks))},
	}, err
}

// countCalls counts the calls to the server of a scenario, or to each of its servers.
func (e *environment) countCalls(ctx context.Context, t *loadtest.Trial) (redisCalls, error) {
	if t.Scenario.Fault != inventoryflow.RedisFailover {
		client, err := e.redis(t.Scenario)
		if err != nil {
			return nil, err
		}
		return redisfault.CountCalls(ctx, client)
	}
	f, err := e.failover(t)
	if err != nil {
		return nil, err
	}
	var members []*redis.Client
	for _, m := range f.Members {
		client, err := e.redisAt("redis://" + m.Addr)
		if err != nil {
			return nil, err
		}
		members = append(members, client)
	}
	return redisfault.CountSetCalls(ctx, members)
}

type redisCalls interface {
	Stop(context.Context) (all, after int64, err error)
}

// failover is the fault redis-failover, in a Redis of its own.
func (e *environment) failover(t *loadtest.Trial) (f redisfault.Failover, err error) {
	f = redisfault.Failover{
		Name: stack.SentinelMaster, Prefix: t.Prefix, TTL: failoverTTL, Times: inventoryflow.Failovers, Replicas: t.Replicas,
	}
	members, err := e.members("redis-sentinel")
	if err == nil {
		f.Members, f.Sentinels = members[:3], members[3:]
	}
	return f, err
}

// inventoryFault returns a fault of Redis: its locks are deleted, or it is killed, or replaced.
func (e *environment) inventoryFault(t *loadtest.Trial) (fault.Fault, error) {
	switch t.Scenario.Fault {
	case loadtest.CombinerPaused:
		return replicafault.Pauses{Replicas: t.Replicas, TTL: lockTTLs["inventory"], InBatch: t.Replicas.PauseInBatch}, nil
	case inventoryflow.LockLost:
		client, err := e.redis(t.Scenario)
		if err != nil {
			return nil, err
		}
		return redisfault.LockLost{Client: client, Prefix: t.Prefix, Every: 2 * time.Millisecond}, nil
	case inventoryflow.RedisDown:
		server, err := e.server("redis")
		return fault.Restart{Server: server, Name: "redis", Evidence: "redis_kills", Times: 1, Dead: 0.5}, err
	case inventoryflow.RedisFailover:
		return e.failover(t)
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
		if s.ClientMax > 0 {
			product.ClientMax = &s.ClientMax
		}
		if _, err := service.AddProduct(ctx, product); err != nil {
			return nil, err
		}
	}
	return addClients(ctx, pool, t)
}
