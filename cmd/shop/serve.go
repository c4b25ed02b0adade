// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"shop/inventory"
)

// serveCmd holds the settings of the server; --help is their documentation.
type serveCmd struct {
	stores    `embed:"" group:"Stores"`
	Locks     lockSettings     `embed:"" group:"Stores"`
	Transfers transferSettings `embed:"" group:"Stores"`
	Wallets   walletSettings   `embed:"" group:"Stores"`
	Listeners listenerFlags    `embed:"" group:"Listeners"`
	Limits    limitFlags       `embed:"" group:"Limits"`
	Lab       labFlags         `embed:"" group:"Lab"`
	Log       logFlags         `embed:"" group:"Log"`
	Traces    traceFlags       `embed:"" group:"Traces"`
}

// lockSettings are the strategy of purchases and its lock store.
type lockSettings struct {
	PGMaxConns int           `name:"pg-max-conns" env:"SHOP_PG_MAX_CONNS" default:"16" help:"Connections to PostgreSQL."`
	RedisURL   string        `name:"redis-url" env:"SHOP_REDIS_URL" placeholder:"URL" help:"Redis, as in redis://host:6379/0, or its Sentinels, as in redis://host:26379/0?master_name=NAME&addr=host2:26379. Needed by strategies that lock there."`
	Strategy   string        `env:"SHOP_STRATEGY" default:"redis+row" help:"How stock is taken: redis+row, combined, row, atomic, optimistic, serializable, advisory, advisory-try or slots. The lab has more."`
	Hot        []string      `name:"hot-products" env:"SHOP_HOT_PRODUCTS" placeholder:"SKU" help:"Products that are bought with the strategy combined: one transaction for all buyers that wait. Needs Redis."`
	LockTTL    time.Duration `name:"lock-ttl" env:"SHOP_LOCK_TTL" default:"2s" help:"How long a lock of stock outlives its holder."`
}

// listenerFlags give the metrics a separate listener, so that the API's port does not
// expose them.
type listenerFlags struct {
	Listen        string `env:"SHOP_LISTEN" default:"127.0.0.1:8080" help:"Address of the API; port 0 takes a free port, which is logged."`
	MetricsListen string `env:"SHOP_METRICS_LISTEN" default:"127.0.0.1:9090" help:"Address of /metrics; empty turns it off."`
}

// limitFlags bound every wait and every resource of requests.
type limitFlags struct {
	RequestTimeout     time.Duration `env:"SHOP_REQUEST_TIMEOUT" default:"5s" help:"Time limit of a request; then 504, or 408 while its body is being read."`
	MaxInFlight        int           `env:"SHOP_MAX_IN_FLIGHT" default:"256" help:"Concurrent requests of all clients, counted after their bodies have been read; then 503."`
	MaxPerClient       int           `env:"SHOP_MAX_PER_CLIENT" default:"0" help:"Concurrent requests of one client, including those whose body is being read; then 429. 0: a quarter of --max-in-flight."`
	RateLimit          float64       `env:"SHOP_RATE_LIMIT" default:"1000" help:"Requests per second of one client at this replica, then 429. 0: no limit."`
	UnknownKeys        float64       `env:"SHOP_UNKNOWN_KEYS" default:"20" help:"Unknown API keys per second of one remote address (IPv6: /64) that are looked up, then 429. Keys that were valid at this replica are exempt. 0: no limit."`
	MaxKeys            int64         `env:"SHOP_MAX_KEYS" default:"1000000" help:"Stored idempotency keys of one client, in PostgreSQL and in MongoDB each; then 429 for a new key until old ones are purged. Counted at most every 30 s. 0: no limit."`
	MaxConns           int           `name:"max-conns" env:"SHOP_MAX_CONNS" default:"0" help:"Open connections of all clients; then the longest idle one is closed, or the new one if none is idle. 0: what the limit of open files leaves beside the pools, at most 10000."`
	MaxConnsPerAddress int           `name:"max-conns-per-address" env:"SHOP_MAX_CONNS_PER_ADDRESS" default:"0" help:"Open connections of one remote address (IPv6: /64). A proxy in front is one address: set it to --max-conns there. 0: half of --max-conns."`
	IdleTimeout        time.Duration `env:"SHOP_IDLE_TIMEOUT" default:"75s" help:"How long a connection may be idle. It must be longer than that of a proxy in front, which otherwise sends a request while the connection is being closed."`
	DrainDelay         time.Duration `env:"SHOP_DRAIN_DELAY" default:"0s" help:"How long /readyz returns 503 before the listener closes: as long as a load balancer needs to notice."`
	ShutdownTimeout    time.Duration `env:"SHOP_SHUTDOWN_TIMEOUT" default:"10s" help:"How long requests in flight may take to finish."`
}

// labFlags inject faults. Without --lab a failpoint is an error, and --lab-kill has no effect: bin/local exec sets its
// variable for all commands.
type labFlags struct {
	Lab        bool `env:"SHOP_LAB" help:"Serve pages at / (a race, a shop to buy from by hand, measurements of locks), and allow unsafe strategies, ?strategy=NAME and failpoints; on loopback addresses only."`
	killFlag   `embed:""`
	Failpoints []failpoint `name:"failpoint" env:"SHOP_FAILPOINT" sep:";" placeholder:"STEP=WHAT" help:"What to do at a step such as before-acquire, after-acquire, after-guard, before-commit, after-commit or after-release (in one flow only: inventory/STEP, transfer/STEP, wallet/STEP): exp:MEAN or sleep:D to pause, kill, stop, stop:KEY to stop at the request with this idempotency key only, or kill-batch or stop-batch for batches of several requests (stop-batch: once after each SIGUSR1). Repeatable; in the environment separated by semicolons."`
	Seed       uint64      `env:"SHOP_SEED" default:"1" help:"Seed of the random pauses of exp:MEAN."`
}

// logFlags configure the log, which goes to standard error.
type logFlags struct {
	LogLevel  slog.Level `env:"SHOP_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	LogFormat string     `env:"SHOP_LOG_FORMAT" default:"json" enum:"json,text" help:"json or text."`
}

// Validate checks the settings before the command connects.
func (c *serveCmd) Validate() error {
	return errors.Join(c.stores.Validate(), c.validateStrategy(), c.Transfers.validate(c.Lab.Lab), c.Wallets.validate(c.Lab.Lab), c.validateLab(), c.validateLimits(), c.Traces.validate())
}

// validateStrategy allows unsafe strategies in the lab only.
func (c *serveCmd) validateStrategy() error {
	s, ok := findStrategy(c.Locks.Strategy)
	if err := checkURL("--redis-url", c.Locks.RedisURL); err != nil {
		return err
	}
	switch {
	case !ok:
		return fmt.Errorf("--strategy %s: no such strategy; there are: %s", c.Locks.Strategy, strings.Join(strategyNames(), ", "))
	case !s.Safe && !c.Lab.Lab:
		return fmt.Errorf("--strategy %s oversells; to watch it, add --lab", s.Name)
	case s.Name == "slots" && len(c.Locks.Hot) > 0:
		return errors.New("--hot-products with --strategy slots: to combined a product is sold out while its units are in slots")
	case c.needsRedis(s) && c.Locks.RedisURL == "":
		return fmt.Errorf("--strategy %s, --hot-products or --lab needs Redis: set --redis-url or SHOP_REDIS_URL, as in redis://127.0.0.1:6379/0", s.Name)
	case (s.Name == "combined" || len(c.Locks.Hot) > 0 || c.Lab.Lab) && c.Locks.LockTTL < 2*inventory.BatchTrust:
		return fmt.Errorf("--lock-ttl %v: too short for batches, want at least %v", c.Locks.LockTTL, 2*inventory.BatchTrust)
	}
	return nil
}

// needsRedis reports whether Redis is required: in the lab always, because each request
// may choose any strategy.
func (c *serveCmd) needsRedis(s inventory.Strategy) bool {
	return c.Lab.Lab || len(c.Locks.Hot) > 0 || slices.Contains(s.Stores, "redis")
}

// validateLab requires a loopback address by number or as localhost: another name may
// resolve to another address later.
func (c *serveCmd) validateLab() error {
	if !c.Lab.Lab {
		if len(c.Lab.Failpoints) > 0 {
			return errors.New("--failpoint breaks things on purpose; to allow it, add --lab")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listeners.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if addr, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !addr.IsLoopback()) {
		return fmt.Errorf("--lab is unsafe and needs a loopback address, as in 127.0.0.1:8080: --listen %s is not one", c.Listeners.Listen)
	}
	return nil
}

// validateLimits reports all errors together.
func (c *serveCmd) validateLimits() error {
	var errs []error
	for _, d := range []struct {
		flag  string
		value time.Duration
		min   time.Duration
	}{
		{"--request-timeout", c.Limits.RequestTimeout, time.Millisecond},
		{"--shutdown-timeout", c.Limits.ShutdownTimeout, time.Millisecond},
		{"--idle-timeout", c.Limits.IdleTimeout, time.Second},
		{"--drain-delay", c.Limits.DrainDelay, 0},
		{"--lock-ttl", c.Locks.LockTTL, 10 * time.Millisecond},
	} {
		if d.value < d.min {
			errs = append(errs, fmt.Errorf("%s %v: must be at least %v", d.flag, d.value, d.min))
		}
	}
	if c.Limits.MaxInFlight < 1 || c.Locks.PGMaxConns < 1 {
		errs = append(errs, errors.New("--max-in-flight and --pg-max-conns must be at least 1"))
	}
	if c.Limits.MaxConns < 0 || c.Limits.MaxConnsPerAddress < 0 {
		errs = append(errs, errors.New("--max-conns and --max-conns-per-address must not be negative; 0 means the default"))
	}
	if c.Limits.RateLimit < 0 || c.Limits.UnknownKeys < 0 || c.Limits.MaxPerClient < 0 || c.Limits.MaxKeys < 0 {
		errs = append(errs, errors.New("--rate-limit, --unknown-keys, --max-keys and --max-per-client must not be negative; 0 means no limit, or a quarter of --max-in-flight"))
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends. It opens the listeners first, so that a port in use fails the
// start, and closes the pools last, when no request uses them.
func (c *serveCmd) Run(ctx context.Context, std stdio) error {
	log, reg := c.Log.open(std.err)
	listeners, err := c.Listeners.open()
	if err != nil {
		return &usageError{err}
	}
	defer listeners.close()
	traces, err := c.Traces.open(ctx, log)
	if err != nil {
		return &usageError{err}
	}
	defer traces.close(log)
	log = traces.log(log)
	app, err := c.assemble(ctx, log, reg, traces)
	if err != nil {
		return err
	}
	defer app.close(log)
	return c.serve(ctx, log, std.out, listeners, app, reg)
}

func (c *serveCmd) serve(ctx context.Context, log *slog.Logger, out io.Writer, l *listeners, a *app, reg *prometheus.Registry) error {
	limits, err := c.Limits.connLimits(a.files())
	if err != nil {
		return err
	}
	conns := newConnections(l.api, limits, log)
	conns.export(reg)
	stopMetrics := serveMetrics(l.metrics, log, metricsHandler(reg))
	defer stopMetrics()
	log.Info("serving", "address", l.api.Addr().String(), "metrics", addressOf(l.metrics), "strategy", c.Locks.Strategy, "transfers", c.Transfers.Strategy, "wallets", c.Wallets.Strategy, "lab", c.Lab.Lab, "connections", limits.all, "connections_per_address", limits.each)
	if c.Lab.Lab {
		go fmt.Fprintf(out, "http://%s/\n", l.api.Addr()) // the page; a pipe that is not read does not stop the start
	}
	life := lifecycle{
		log: log, drain: a.server.Drain, closing: a.closing, delay: c.Limits.DrainDelay,
		timeout: c.Limits.ShutdownTimeout, request: c.Limits.RequestTimeout, idle: c.Limits.IdleTimeout,
	}
	return life.run(ctx, conns, keyed(c.Lab.Failpoints, a.handler()))
}
