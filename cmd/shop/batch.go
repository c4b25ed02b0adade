package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
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
	RollUpTTL time.Duration    `name:"roll-up-lock-ttl" env:"SHOP_ROLL_UP_LOCK_TTL" default:"10s" help:"TTL of the lock under which one server adds up. After a crash the others skip the work for this long."`
	Every     time.Duration    `env:"SHOP_BATCH_EVERY" help:"Repeat at this interval until a signal comes; without it run once."`
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
	log := c.Log.logger(std.err)
	pool, err := c.open(ctx, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := checkMigrated(ctx, pool); err != nil {
		return err
	}
	money := transfer.Config{Pool: pool, Count: func(transfer.EventKind, string) {}}
	backend, err := c.Transfers.open(ctx, c.Lab, money, log, prometheus.NewRegistry()) // batch serves no metrics
	if err != nil {
		return err
	}
	defer backend.close()
	wallets, err := c.connectIfAny()
	if err != nil {
		return err
	}
	defer disconnect(wallets)
	locks, err := pglock.New(pool, c.RollUpTTL)
	if err != nil {
		return &usageError{fmt.Errorf("--roll-up-lock-ttl: %w", err)}
	}
	defer locks.Close()
	b := batch{log, pool, rollup.Roller{Pool: pool, Locks: locks, Observer: locking.Log(log)}, backend, wallets}
	if c.Every == 0 {
		return b.once(ctx)
	}
	log.Info("sweeping", "every", c.Every, "strategy", c.Transfers.Strategy)
	for ctx.Err() == nil {
		if err := b.once(ctx); err != nil && ctx.Err() == nil {
			log.Warn("the round is incomplete; the next round tries again", "error", err)
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

// once runs one round. Each part runs even if another has failed.
func (b batch) once(ctx context.Context) error {
	swept, sweepErr := b.sweep(ctx)
	keys, keysErr := pgtx.Purge(ctx, b.pool, pgtx.KeysKept)
	var (
		refusals  int64
		walletErr error
	)
	if b.wallets != nil {
		refusals, walletErr = wallet.Purge(ctx, b.wallets, wallet.KeysKept)
	}
	level := slog.LevelDebug
	if int64(swept)+keys+refusals > 0 {
		level = slog.LevelInfo
	}
	b.log.Log(ctx, level, "batch", "holds_expired", swept, "keys_purged", keys, "wallet_refusals_purged", refusals)
	return errors.Join(b.rollUp(ctx), sweepErr, keysErr, walletErr)
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
