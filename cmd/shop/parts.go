package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking"
	"shop/locking/lockprom"
	"shop/locking/redislock"
	"shop/transfer"
	"shop/wallet"
)

// parts are what a server is put together from.
type parts struct {
	pool   *pgxpool.Pool
	probe  *pgxpool.Pool    // one connection, for /readyz alone
	client *redis.Client    // nil without Redis
	locks  *redislock.Store // nil without Redis
	bank   *bank
	till   *till
	server *api.Server
}

// assemble connects and wires. Neither Redis nor etcd nor MongoDB need be up: the
// shop starts degraded, without etcd no money moves until it is there, and without
// MongoDB nothing is done with wallets.
func (c *serveCmd) assemble(ctx context.Context, log *slog.Logger, reg *prometheus.Registry) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			p.close(log)
		}
	}()
	if p.pool, err = c.open(ctx, c.Locks.PGMaxConns); err != nil {
		return nil, err
	}
	// Not from the pool: when all its connections are busy, the probe would
	// wait behind the customers, and a busy shop would be taken for a dead one.
	if p.probe, err = c.open(ctx, 1); err != nil {
		return nil, err
	}
	if err := checkMigrated(ctx, p.pool); err != nil {
		return nil, err
	}
	draw := exponential(c.Lab.Seed)
	// The domain gets everything handed in: it reads no environment, and knows no HTTP.
	stock := inventory.Config{
		Pool: p.pool, Strategy: c.Locks.Strategy, Encode: api.Encode, Log: log,
		Count:     countEvents(reg, "inventory", stockKinds, strategyNames()),
		Failpoint: hook[inventory.Step]("inventory", c.Lab.Failpoints, draw),
	}
	if s, _ := findStrategy(c.Locks.Strategy); c.needsRedis(s) {
		if err := p.openLocks(c.Locks, c.Transfers.LockPrefix, reg, &stock); err != nil {
			return nil, err
		}
	}
	service, err := inventory.New(stock)
	if err != nil {
		return nil, err
	}
	// The same pool: both lessons bound the waits of a connection alike.
	money := transfer.Config{
		Pool: p.pool, Encode: api.EncodeTransfer,
		Count:     countEvents(reg, "transfer", moneyKinds, transferStrategyNames()),
		Failpoint: hook[transfer.Step]("transfer", c.Lab.Failpoints, draw),
	}
	if p.bank, err = c.Transfers.open(ctx, c.Lab.Lab, money, log, reg); err != nil {
		return nil, err
	}
	purses := wallet.Config{
		Line:      min(wallet.LineMax, max(1, c.Limits.MaxInFlight/2)), // a wallet's queue never fills the server
		Encode:    api.EncodeWallet,
		Count:     countEvents(reg, "wallet", walletKinds, walletStrategyNames()),
		Failpoint: hook[wallet.Step]("wallet", c.Lab.Failpoints, draw),
	}
	if p.till, err = c.Wallets.open(ctx, c.mongoSettings, c.Lab.Lab, purses, log); err != nil {
		return nil, err
	}
	if p.locks != nil {
		showBreaker(reg, "redis", service.Unreachable)
	}
	showBreaker(reg, "mongo", func() bool { return p.till.closed() != nil })
	p.server, err = api.New(c.apiConfig(p, service, log, reg))
	return p, err
}

// openLocks gives config a lock store in Redis.
func (p *parts) openLocks(s lockSettings, prefix string, reg prometheus.Registerer, config *inventory.Config) error {
	observer, err := lockprom.New(reg, "redis")
	if err != nil {
		return err
	}
	if p.client, err = redislock.Connect(s.RedisURL, s.LockTTL); err != nil {
		return &usageError{fmt.Errorf("--redis-url: %w", err)}
	}
	if p.locks, err = redislock.New(p.client, s.LockTTL, redislock.Options{Prefix: prefix}); err != nil {
		return &usageError{err}
	}
	config.Locks, config.Lock = p.locks, locking.Options{Observer: observer}
	return nil
}

// apiConfig is the front of the same parts.
func (c *serveCmd) apiConfig(p *parts, service *inventory.Service, log *slog.Logger, reg prometheus.Registerer) api.Config {
	config := api.Config{
		Pool: p.pool, Orders: service, Catalog: service, Books: p.bank.books, Transfers: p.bank.with, Wallets: p.till.with,
		Ready:    func(ctx context.Context) (api.Degraded, error) { return p.ready(ctx, service) },
		Audit:    p.auditNumbers,
		Strategy: c.Locks.Strategy, Log: log, Metrics: reg,
		Limits: api.Limits{Request: c.Limits.RequestTimeout, InFlight: c.Limits.MaxInFlight, Share: c.Limits.MaxPerClient, Rate: c.Limits.RateLimit, Failures: c.Limits.UnknownKeys},
	}
	if c.Lab.Lab {
		config.Lab, config.TransferLab, config.WalletLab = strategyNames(), c.Transfers.offered(), walletStrategyNames()
	}
	return config
}

// ready asks all at once: a probe has little time.
func (p *parts) ready(ctx context.Context, service *inventory.Service) (api.Degraded, error) {
	degraded := api.Degraded{Wallets: p.till.closed() != nil}
	short, cancel := context.WithTimeout(ctx, reachableWait)
	defer cancel()
	var stores sync.WaitGroup
	stores.Go(func() { degraded.Locks = service.Degraded(short) })
	stores.Go(func() { degraded.Transfers = !p.bank.reachable(short) })
	err := api.Ping(ctx, p.probe)
	stores.Wait()
	return degraded, err
}

// closeWait bounds the closing of a pool whose connections do not come back.
const closeWait = 5 * time.Second

// close ends what was opened, in the order of use: locks before their client,
// and the database last, since a lock that is being given back may still be in a transaction.
func (p *parts) close(log *slog.Logger) {
	if p.bank != nil {
		p.bank.close()
	}
	if p.till != nil {
		p.till.close()
	}
	if p.locks != nil {
		p.locks.Close()
	}
	if p.client != nil {
		_ = p.client.Close()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, pool := range []*pgxpool.Pool{p.probe, p.pool} {
			if pool != nil {
				pool.Close()
			}
		}
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
		log.Warn("a connection to PostgreSQL did not come back", "waited", closeWait)
	}
}

// checkMigrated tells a missing table now, and not to the first customer.
func checkMigrated(ctx context.Context, pool *pgxpool.Pool) error {
	var ready bool
	err := pool.QueryRow(ctx, `SELECT to_regclass('clients') IS NOT NULL AND to_regclass('products') IS NOT NULL AND to_regclass('accounts') IS NOT NULL`).Scan(&ready)
	if err == nil && !ready {
		err = errors.New("the database lacks tables; run: shop migrate")
	}
	if err != nil {
		return &usageError{err}
	}
	return nil
}

// findStrategy asks the domain, which alone knows what it can do.
func findStrategy(name string) (inventory.Strategy, bool) {
	all := inventory.Strategies()
	i := slices.IndexFunc(all, func(s inventory.Strategy) bool { return s.Name == name })
	if i < 0 {
		return inventory.Strategy{}, false
	}
	return all[i], true
}

func strategyNames() []string {
	var names []string
	for _, s := range inventory.Strategies() {
		names = append(names, s.Name)
	}
	return names
}
