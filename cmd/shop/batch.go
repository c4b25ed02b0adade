// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/inventory/rollup"
	"shop/locking"
	"shop/locking/idempotency/pgtx"
	"shop/locking/pglock"
	"shop/transfer"
	"shop/wallet"
)

// batchCmd adds up the sales of each day, releases the money of expired holds, and deletes
// old idempotency keys with their replies.
type batchCmd struct {
	stores    `embed:"" group:"Stores"`
	Transfers transferSettings `embed:"" group:"Stores"`
	RollUpTTL time.Duration    `name:"roll-up-lock-ttl" env:"SHOP_ROLL_UP_LOCK_TTL" default:"10s" help:"TTL of the lock under which one process adds up the sales. After it crashes, the others skip this work for up to this long."`
	Every     time.Duration    `env:"SHOP_BATCH_EVERY" help:"Repeat at this interval until a signal comes; without it run once."`
	Metrics   string           `name:"metrics-listen" env:"SHOP_METRICS_LISTEN" group:"Listeners" help:"Address of /metrics; empty turns it off."`
	Lab       bool             `env:"SHOP_LAB" group:"Lab" help:"Allow unsafe strategies."`
	Log       logFlags         `embed:"" group:"Log"`
}

// Validate checks the settings before the command connects.
func (c *batchCmd) Validate() error {
	if c.Every < 0 {
		return errors.New("--every must not be negative")
	}
	return errors.Join(c.stores.Validate(), c.Transfers.validate(c.Lab))
}

// Run runs one round and returns its error. With --every it runs rounds until ctx ends,
// and logs an error before it continues with the next round.
func (c *batchCmd) Run(ctx context.Context, std stdio) error {
	log, reg := c.Log.open(std.err)
	sig := signals{log: log, metrics: reg}
	listener, err := listenMetrics(c.Metrics)
	if err != nil {
		return &usageError{err}
	}
	defer serveMetrics(listener, sig.log, metricsHandler(sig.metrics))()
	pool, err := c.open(ctx, 6) // for the parts of a round, which run at the same time
	if err != nil {
		return err
	}
	defer pool.Close()
	watchPostgres(sig.metrics, pool)
	if err := checkMigrated(ctx, pool); err != nil {
		return err
	}
	money := transfer.Config{Pool: pool, Log: log, Count: countEvents(sig.metrics, "transfer", moneyKinds, transferStrategyNames())}
	backend, err := c.Transfers.open(ctx, c.Lab, money, sig)
	if err != nil {
		return err
	}
	defer backend.close()
	wallets, err := c.connectIfAny()
	if err != nil {
		return err
	}
	defer disconnect(wallets)
	locks, err := pglock.New(pool, c.RollUpTTL, pglock.Options{})
	if err != nil {
		return &usageError{fmt.Errorf("--roll-up-lock-ttl: %w", err)}
	}
	defer locks.Close()
	observer, err := sig.observer("postgres")
	if err != nil {
		return err
	}
	return c.repeat(ctx, batch{sig.log, pool, rollup.Roller{Pool: pool, Locks: locks, Observer: observer}, backend, wallets}, listener)
}

// repeat runs one round, or with --every a round at each interval.
func (c *batchCmd) repeat(ctx context.Context, b batch, metrics net.Listener) error {
	if c.Every == 0 {
		return b.once(ctx)
	}
	b.log.Info("sweeping", "every", c.Every, "strategy", c.Transfers.Strategy, "metrics", addressOf(metrics))
	for ctx.Err() == nil {
		if err := b.once(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("the round is incomplete; the next round tries again", "error", err)
		}
		pause(ctx, c.Every)
	}
	return nil
}

// batch does the work of one round.
type batch struct {
	log     *slog.Logger
	pool    *pgxpool.Pool
	sales   rollup.Roller
	backend *transferBackend
	wallets *mongo.Database // nil: none
}

// once runs one round. Its parts run at the same time, and each even if another has failed: millions of expired holds
// take hours, which the sales of a day must not wait for.
func (b batch) once(ctx context.Context) error {
	var (
		swept                                   int
		keys, refusals                          int64
		sweepErr, keysErr, walletErr, rollUpErr error
		parts                                   sync.WaitGroup
	)
	parts.Go(func() { swept, sweepErr = b.sweep(ctx) })
	parts.Go(func() { keys, keysErr = pgtx.Purge(ctx, b.pool, pgtx.KeysKept) })
	parts.Go(func() { rollUpErr = b.rollUp(ctx) })
	if b.wallets != nil {
		parts.Go(func() { refusals, walletErr = wallet.Purge(ctx, b.wallets, wallet.KeysKept) })
	}
	parts.Wait()
	level := slog.LevelDebug
	if int64(swept)+keys+refusals > 0 {
		level = slog.LevelInfo
	}
	b.log.Log(ctx, level, "batch", "holds_expired", swept, "keys_purged", keys, "wallet_refusals_purged", refusals)
	return errors.Join(rollUpErr, sweepErr, keysErr, walletErr)
}

// rollUp adds up the sales of the days that are due. It is no error if another server does so.
func (b batch) rollUp(ctx context.Context) error {
	days, err := b.sales.Run(ctx)
	for _, day := range days {
		b.log.Info("the sales of a day are added up", "day", day.Format(time.DateOnly))
	}
	if errors.Is(err, locking.ErrBusy) {
		b.log.Info("another server adds up the sales")
		return nil
	}
	return err
}

func (b batch) sweep(ctx context.Context) (int, error) {
	service, err := b.backend.with("")
	if err != nil {
		return 0, err
	}
	return service.Sweep(ctx)
}
