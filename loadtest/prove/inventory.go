// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/redisfault"
	inventoryflow "shop/loadtest/scenario/inventory"
	"shop/loadtest/site"
)

// inventoryReplica completes a program whose replicas sell stock with the scenario's strategy.
func (e *environment) inventoryReplica(t *loadtest.Trial, p *site.Program) error {
	s := t.Scenario
	own := e.setup(s)
	if own.redis == sentinels { // new servers, whose first member is the master
		if err := e.retire(context.Background(), sentinels); err != nil {
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
	ttl := cmp.Or(own.ttl, lockTTLs["inventory"])
	if own.ttl > 0 {
		for n := range urls {
			urls[n] = setting(urls[n], "idle_in_transaction_session_timeout", "0") // else a paused replica would have no transaction to go on with
		}
	}
	if own.async {
		for n := range urls {
			urls[n] = setting(urls[n], "synchronous_commit", "off")
		}
	}
	p.Args = func(n int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, t.Prefix, redisURLs[n]), []string{
			"--strategy", s.Strategy, "--transfer-strategy", "row", "--mongo-url=",
			"--postgres-url", urls[n], "--etcd-endpoints", e.settings.Etcd, "--lock-ttl", ttl.String(),
		}, widened("inventory/after-guard", own.guard))
	}
	return nil
}

// failoverTTL is the TTL of locks under redis-failover. A third of it, after which a lease is renewed, is
// longer than a failover: else the paused replica would learn at once that its lease is lost. It is the time limit of
// requests too: else the paused replica would end its request instead of going on with it.
const failoverTTL = 18 * time.Second

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

// redisURL returns the URL of the shared server, or of a private one for a scenario that kills it.
func (e *environment) redisURL(s loadtest.Scenario) (string, error) {
	if kind := e.setup(s).redis; kind != "" {
		return e.privateURL(kind)
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
	if e.setup(t.Scenario).redis != sentinels {
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

// sentinels is the kind of a Redis with replicas and sentinels.
const sentinels = "redis-sentinel"

// failover is the fault redis-failover, in a Redis of its own.
func (e *environment) failover(t *loadtest.Trial) (f redisfault.Failover, err error) {
	f = redisfault.Failover{
		Name: stack.SentinelMaster, Prefix: t.Prefix, TTL: failoverTTL, Times: inventoryflow.Failovers, Replicas: t.Replicas,
	}
	members, err := e.members(sentinels)
	if err == nil {
		f.Members, f.Sentinels = members[:3], members[3:]
	}
	return f, err
}

// inventorySetups are the faults of purchases: the locks in Redis are deleted, or Redis is killed, or replaced.
func inventorySetups() map[loadtest.Fault]setup {
	return withAll(map[loadtest.Fault]setup{
		loadtest.Nemesis:        {redis: "redis", postgres: "postgres", links: linksOfAll, inject: (*environment).nemesis},
		loadtest.CrashMatrix:    {links: linksOfVictim, start: armed, inject: crashMatrix},
		loadtest.HangUp:         {guard: 20, inject: hangUp}, // requests wait for a batch, however fast the machine is
		loadtest.CombinerPaused: {start: stopInBatch, inject: combinerPaused},
		loadtest.AllKilled:      {redis: "redis", postgres: "postgres", inject: allKilled(loadtest.AllKilledTimes, "redis", "postgres")},
		loadtest.AllKilledAsync: {redis: "redis", postgres: "postgres", async: true, inject: allKilled(loadtest.AllKilledAsyncTimes, "redis", "postgres")},
		inventoryflow.LockLost: {inject: func(e *environment, t *loadtest.Trial) (fault.Fault, error) {
			client, err := e.redis(t.Scenario)
			return redisfault.LockLost{Client: client, Prefix: t.Prefix, Every: 2 * time.Millisecond}, err
		}},
		inventoryflow.RedisDown: {redis: "redis", inject: func(e *environment, _ *loadtest.Trial) (fault.Fault, error) {
			server, err := e.server("redis")
			return fault.Restart{Server: server, Name: "redis", Evidence: "redis_kills", Times: 1, Dead: 0.5}, err
		}},
		inventoryflow.RedisFailover: {
			redis: sentinels, ttl: failoverTTL, args: []string{"--request-timeout", failoverTTL.String()},
			guard:  30, // so that a replica is soon found between reading and acting
			inject: func(e *environment, t *loadtest.Trial) (fault.Fault, error) { return e.failover(t) },
		},
	})
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
