package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency/pgtx"
	"shop/transfer"
	"shop/wallet"
)

// batchCmd releases the money of expired holds, and deletes old idempotency keys with
// their replies.
type batchCmd struct {
	stores    `embed:"" group:"Stores"`
	Transfers transferSettings `embed:"" group:"Stores"`
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
	if c.Every == 0 {
		return once(ctx, log, pool, backend, wallets)
	}
	log.Info("sweeping", "every", c.Every, "strategy", c.Transfers.Strategy)
	for ctx.Err() == nil {
		if err := once(ctx, log, pool, backend, wallets); err != nil && ctx.Err() == nil {
			log.Warn("the round is incomplete; the next round tries again", "error", err)
		}
		pause(ctx, c.Every)
	}
	return nil
}

// once runs one round. It purges old keys even if releasing holds failed because etcd is down.
func once(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool, backend *transferBackend, wallets *mongo.Database) error {
	swept, sweepErr := sweep(ctx, backend)
	keys, keysErr := pgtx.Purge(ctx, pool, pgtx.KeysKept)
	var (
		refusals  int64
		walletErr error
	)
	if wallets != nil {
		refusals, walletErr = wallet.Purge(ctx, wallets, wallet.KeysKept)
	}
	level := slog.LevelDebug
	if int64(swept)+keys+refusals > 0 {
		level = slog.LevelInfo
	}
	log.Log(ctx, level, "batch", "holds_expired", swept, "keys_purged", keys, "wallet_refusals_purged", refusals)
	return errors.Join(sweepErr, keysErr, walletErr)
}

func sweep(ctx context.Context, backend *transferBackend) (int, error) {
	service, err := backend.with("")
	if err != nil {
		return 0, err
	}
	return service.Sweep(ctx)
}
