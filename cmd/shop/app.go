// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"shop/cmd/shop/api"
	"shop/cmd/shop/lab"
	"shop/cmd/shop/reference"
	"shop/inventory"
	"shop/locking"
	"shop/locking/driver"
	"shop/locking/redislock"
	"shop/transfer"
	"shop/wallet"
)

// app holds what serve opens.
type app struct {
	pool      *pgxpool.Pool
	probe     *pgxpool.Pool // one connection, for /readyz alone
	client    *redis.Client // nil without Redis
	locks     *driver.Store // nil without Redis
	orders    *inventory.Service
	transfers *transferBackend
	wallets   *walletBackend
	server    *api.Server
	traced    http.Handler // server, with a trace of each request
	reference reference.Reference
	lab       *lab.Lab // nil without --lab
}

// assemble connects and wires. Redis, etcd and MongoDB may be down: the shop starts
// degraded. Without etcd no money moves until it replies, and without MongoDB requests
// for wallets are busy.
func (c *serveCmd) assemble(ctx context.Context, log *slog.Logger, reg *prometheus.Registry, traces *tracer) (_ *app, err error) {
	a := &app{}
	defer func() {
		if err != nil {
			a.close(log)
		}
	}()
	if a.pool, err = c.open(ctx, c.Locks.PGMaxConns, traces.postgres); err != nil {
		return nil, err
	}
	// A separate pool: a probe that waits for a connection would make a busy replica look
	// dead.
	if a.probe, err = c.open(ctx, 1); err != nil {
		return nil, err
	}
	if err := c.checkTables(ctx, a.pool); err != nil {
		return nil, err
	}
	draw := exponential(c.Lab.Seed)
	stock := inventory.Config{
		Pool: a.pool, Strategy: c.Locks.Strategy, Hot: c.Locks.Hot, Encode: api.Encode, Log: log,
		Count:     countEvents(reg, "inventory", stockKinds, strategyNames()),
		Failpoint: hook[inventory.Step]("inventory", c.Lab.Failpoints, draw),
	}
	if s, _ := findStrategy(c.Locks.Strategy); c.needsRedis(s) {
		if err := a.openLocks(c.Locks, c.Transfers.LockPrefix, signals{log, reg, traces}, &stock); err != nil {
			return nil, err
		}
	}
	service, err := inventory.New(stock)
	if err != nil {
		return nil, err
	}
	a.orders = service
	// The same pool: both flows use the same connection timeouts.
	money := transfer.Config{
		Pool: a.pool, Encode: api.EncodeTransfer, Log: log,
		Count:     countEvents(reg, "transfer", moneyKinds, transferStrategyNames()),
		Failpoint: hook[transfer.Step]("transfer", c.Lab.Failpoints, draw),
	}
	if a.transfers, err = c.Transfers.open(ctx, c.Lab.Lab, money, signals{log, reg, traces}); err != nil {
		return nil, err
	}
	wallets := wallet.Config{
		QueueMax:  min(wallet.QueueMax, max(1, c.Limits.MaxInFlight/2)), // a wallet's queue never fills the server
		Encode:    api.EncodeWallet,
		Log:       log,
		Count:     countEvents(reg, "wallet", walletKinds, walletStrategyNames()),
		Failpoint: hook[wallet.Step]("wallet", c.Lab.Failpoints, draw),
	}
	if a.wallets, err = c.Wallets.open(ctx, c.mongoSettings, c.Lab.Lab, wallets, signals{log, reg, traces}); err != nil {
		return nil, err
	}
	a.export(reg)
	if a.lab, err = c.openLab(a, log); err != nil {
		return nil, err
	}
	spec, err := api.Document()
	if err != nil {
		return nil, err
	}
	a.reference = reference.New(spec)
	if a.server, err = api.New(c.apiConfig(a, service, log, reg)); err != nil {
		return nil, err
	}
	a.traced = traces.handler(a.server)
	return a, nil
}

// openLab returns the lab page, or nil without --lab.
func (c *serveCmd) openLab(a *app, log *slog.Logger) (*lab.Lab, error) {
	if !c.Lab.Lab {
		return nil, nil
	}
	races, err := labConfig(c.stores, c.Transfers.etcdSettings, c.Locks.RedisURL, log)
	if err != nil {
		return nil, err
	}
	races.Shop, races.Sources, races.KillRedis = c.labShop(a, a.orders), lab.Checkout(), c.Lab.LabKill == "redis"
	return lab.New(races), nil
}

// export registers what is read from the parts of the app at each scrape.
func (a *app) export(reg *prometheus.Registry) {
	watchPostgres(reg, a.pool)
	if a.client != nil {
		watchRedis(reg, a.client)
		showBreaker(reg, "redis", a.orders.Unreachable)
	}
	showBreaker(reg, "mongo", func() bool { return a.wallets.closed() != nil })
	watchQueue(reg, "inventory", a.orders.Queued)
	watchQueue(reg, "transfer", a.transfers.queued)
	if a.wallets.service != nil {
		watchQueue(reg, "wallet", a.wallets.service.Queued)
	}
}

// openLocks sets the lock store of config, in Redis.
func (a *app) openLocks(s lockSettings, prefix string, sig signals, config *inventory.Config) error {
	observer, err := sig.observer("redis")
	if err != nil {
		return err
	}
	if a.client, err = redislock.Connect(s.RedisURL, s.LockTTL); err != nil {
		return &usageError{fmt.Errorf("--redis-url: %w", err)}
	}
	if err := sig.traces.redis(a.client); err != nil {
		return err
	}
	if a.locks, err = redislock.New(a.client, s.LockTTL, redislock.Options{Prefix: prefix}); err != nil {
		return &usageError{err}
	}
	config.Locks, config.Lock = a.locks, locking.Options{Observer: observer}
	return nil
}

// handler is the API with its reference, and in the lab its page.
func (a *app) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case a.reference.Serves(path):
			a.reference.ServeHTTP(w, r)
		case a.lab != nil && lab.Serves(path):
			a.lab.ServeHTTP(w, r)
		default:
			a.traced.ServeHTTP(w, r)
		}
	})
}

// closing is called when the listener closes: nothing waits for slow bodies or for a race.
func (a *app) closing() {
	a.server.Close()
	if a.lab != nil {
		a.lab.Stop()
	}
}

// buyers returns the Services that sell, by strategy.
func (a *app) buyers(own *inventory.Service) api.Orders {
	return func(strategy string) (api.Buyer, error) {
		if strategy == "" {
			return own, nil
		}
		return own.With(strategy)
	}
}

// apiConfig is the configuration of the API.
func (c *serveCmd) apiConfig(a *app, service *inventory.Service, log *slog.Logger, reg prometheus.Registerer) api.Config {
	config := api.Config{
		Pool: a.pool, Orders: a.buyers(service), Catalog: service, Books: a.transfers.books, Transfers: a.transfers.with, Wallets: a.wallets.with,
		Ready: func(ctx context.Context) (api.Degraded, error) {
			degraded, err := a.ready(ctx, service)
			if err == nil {
				err = c.checkSlots(ctx, a.probe) // another replica may have begun to use them
			}
			return degraded, err
		},
		Audit: a.auditNumbers,
		Log:   log, Metrics: reg,
		Limits: api.Limits{Request: c.Limits.RequestTimeout, InFlight: c.Limits.MaxInFlight, Share: c.Limits.MaxPerClient, Rate: c.Limits.RateLimit, Failures: c.Limits.UnknownKeys, Keys: c.Limits.MaxKeys},
	}
	if c.Lab.Lab {
		config.Lab, config.TransferLab, config.WalletLab = strategyNames(), c.Transfers.offered(), walletStrategyNames()
	}
	return config
}

// ready checks all stores concurrently: a probe has little time.
func (a *app) ready(ctx context.Context, service *inventory.Service) (api.Degraded, error) {
	degraded := api.Degraded{Wallets: a.wallets.closed() != nil}
	short, cancel := context.WithTimeout(ctx, reachableWait)
	defer cancel()
	var stores sync.WaitGroup
	stores.Go(func() { degraded.Locks = service.Degraded(short) })
	stores.Go(func() { degraded.Transfers = !a.transfers.reachable(short) })
	err := api.Ping(ctx, a.probe)
	if err == nil {
		err = checkPrivileges(ctx, a.probe)
	}
	stores.Wait()
	return degraded, err
}

// closeWait bounds the closing of a pool whose connections are not returned.
const closeWait = 5 * time.Second

// close closes everything in the order of use: locks before their client, and PostgreSQL
// last, since a lock may still be released inside a transaction.
func (a *app) close(log *slog.Logger) {
	if a.lab != nil {
		a.lab.Close()
	}
	if a.transfers != nil {
		a.transfers.close()
	}
	if a.wallets != nil {
		a.wallets.close()
	}
	if a.orders != nil {
		a.orders.Close()
	}
	if a.locks != nil {
		a.locks.Close()
	}
	if a.client != nil {
		_ = a.client.Close()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, pool := range []*pgxpool.Pool{a.probe, a.pool} {
			if pool != nil {
				pool.Close()
			}
		}
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
		log.Warn("a connection to PostgreSQL was not returned", "waited", closeWait)
	}
}

// checkTables reports what of the tables does not fit the settings.
func (c *serveCmd) checkTables(ctx context.Context, pool *pgxpool.Pool) error {
	if err := checkMigrated(ctx, pool); err != nil {
		return err
	}
	return errors.Join(c.checkHot(ctx, pool), c.checkSlots(ctx, pool))
}

// checkMigrated reports what is missing at the start, not at the first request.
func checkMigrated(ctx context.Context, pool *pgxpool.Pool) error {
	var ready, granted bool
	err := pool.QueryRow(ctx, `
		SELECT to_regclass('clients') IS NOT NULL AND to_regclass('products_with_slots') IS NOT NULL AND to_regclass('accounts') IS NOT NULL
		       AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('idempotency_keys') AND attname = 'header' AND NOT attisdropped),
		       coalesce(has_table_privilege(to_regclass('clients'), 'SELECT'), false)`).Scan(&ready, &granted)
	switch {
	case err == nil && !ready:
		err = errors.New("the database lacks tables or columns, or this role may not use their schema; run: shop migrate, for a role of its own with --grant-to")
	case err == nil && !granted:
		err = errors.New("this role may not read the tables; run as their owner: shop migrate --grant-to ROLE")
	}
	if err == nil {
		err = checkPrivileges(ctx, pool)
	}
	if err != nil {
		return &usageError{err}
	}
	return nil
}

// checkSlots reports units that no purchase would see, because they are in slots and the strategy is another one.
func (c *serveCmd) checkSlots(ctx context.Context, pool *pgxpool.Pool) error {
	if c.Locks.Strategy == "slots" || c.Lab.Lab { // the lab takes any strategy
		return nil
	}
	var some bool
	err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM stock_slots WHERE units > 0)`).Scan(&some)
	if err == nil && some {
		err = &usageError{fmt.Errorf("--strategy %s does not see units that are in stock_slots: "+
			"serve with --strategy slots, or put them back with the statements in inventory/slots.go", c.Locks.Strategy)}
	}
	return err
}

// checkPrivileges reports the privileges of grants.sql without which no order or no transfer is possible.
func checkPrivileges(ctx context.Context, pool *pgxpool.Pool) error {
	var missing string
	err := pool.QueryRow(ctx, `
		SELECT coalesce(string_agg(privilege || ' on ' || tab, ', '), '')
		FROM (VALUES ('SELECT', 'clients products products_with_slots stock_slots orders order_lines accounts transfers ledger_entries idempotency_keys'),
		             ('INSERT', 'stock_slots purchased orders order_lines stock_movements transfers ledger_entries idempotency_keys'),
		             ('UPDATE', 'products stock_slots purchased orders accounts transfers'),
		             ('DELETE', 'stock_slots')) AS needed (privilege, tabs),
		     LATERAL regexp_split_to_table(tabs, ' ') AS tab
		WHERE NOT CASE privilege WHEN 'DELETE' THEN has_table_privilege(to_regclass(tab), privilege)
		                         ELSE has_any_column_privilege(to_regclass(tab), privilege) END`, pgx.QueryExecModeExec).Scan(&missing)
	if err == nil && missing != "" {
		err = fmt.Errorf("this role lacks the privileges %s; run as the owner of the tables: shop migrate --grant-to ROLE", missing)
	}
	return err
}

// findStrategy finds a strategy of purchases by name.
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
