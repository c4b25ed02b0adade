// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/inventory"
	"shop/locking"
	"shop/locking/combine"
	"shop/locking/driver"
	"shop/locking/etcdlock"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/pglock"
	"shop/transfer"
)

// openTryLease takes a lease in a transaction of its own. A Store on the same table releases it.
func openTryLease(ctx context.Context, cfg Config) (subject, error) {
	pool, err := openTables(ctx, cfg)
	if err != nil {
		return subject{}, err
	}
	store, err := pglock.New(pool, measureTTL, pglock.Options{})
	if err != nil {
		pool.Close()
		return subject{}, err
	}
	return subject{once: func(ctx context.Context) (err error) {
		var lease locking.Lease
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			lease, err = pglock.TryXactLease(ctx, tx, measuredKey+"/try", rand.Text(), measureTTL)
			return err
		})
		if err != nil {
			return err
		}
		return store.Release(ctx, lease)
	}, close: func() {
		store.Close()
		pool.Close()
	}}, nil
}

// openSlots buys a unit after another.
func openSlots(ctx context.Context, cfg Config) (subject, error) {
	pool, err := lessonPool(ctx, cfg, "inventory", inventory.Migrate)
	if err != nil {
		return subject{}, err
	}
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "slots"})
	if err == nil {
		_, err = service.AddProduct(ctx, inventory.Product{SKU: measuredKey, Name: measuredKey, Currency: "EUR", Stock: 1 << 40})
	}
	if err != nil {
		pool.Close()
		return subject{}, err
	}
	return subject{once: func(ctx context.Context) error {
		_, err := service.Buy(ctx, newRequest(), []inventory.Line{{SKU: measuredKey, Quantity: 1}})
		return err
	}, close: pool.Close}, nil
}

// openIncrement adds to a document if the result stays below a limit.
func openIncrement(ctx context.Context, cfg Config) (subject, error) {
	client, name, err := mongoClient(cfg, nil)
	if err != nil {
		return subject{}, err
	}
	closeClient := func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }
	documents, id := client.Database(name).Collection("lab_increments"), bson.D{{Key: "_id", Value: measuredKey}}
	zero := bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(0)}}}}
	if _, err := documents.UpdateOne(ctx, id, zero, options.UpdateOne().SetUpsert(true)); err != nil {
		closeClient()
		return subject{}, err
	}
	below := append(id, bson.E{Key: "n", Value: bson.D{{Key: "$lt", Value: int64(1) << 62}}})
	add := bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}
	return subject{once: func(ctx context.Context) error {
		result, err := documents.UpdateOne(ctx, below, add)
		if err == nil && result.ModifiedCount != 1 {
			err = errors.New("lab: the document did not match")
		}
		return err
	}, close: closeClient}, nil
}

func releaseAlone(_ context.Context, store *driver.Store) (subject, error) {
	var lease locking.Lease
	return subject{
		before: func(ctx context.Context) (err error) {
			lease, err = store.TryAcquire(ctx, measuredKey+"/release")
			return err
		},
		once:  func(ctx context.Context) error { return store.Release(ctx, lease) },
		close: func() {},
	}, nil
}

func renewAlone(ctx context.Context, store *driver.Store) (subject, error) {
	lease, err := store.TryAcquire(ctx, measuredKey+"/renew")
	return subject{
		once: func(ctx context.Context) (err error) {
			lease, err = store.Renew(ctx, lease)
			return err
		},
		close: func() { _ = store.Release(context.WithoutCancel(ctx), lease) }, // if it fails, the lease expires
	}, err
}

// combined lets one client send one request after another. Its work is none.
func combined(_ context.Context, store *driver.Store) (subject, error) {
	combiner, err := combine.New(combine.Config[string, string]{
		Store: store,
		Apply: func(_ context.Context, _ locking.Lease, batch []string) ([]combine.Result[string], error) {
			return make([]combine.Result[string], len(batch)), nil
		},
	})
	if err != nil {
		return subject{close: func() {}}, err
	}
	return subject{once: func(ctx context.Context) error {
		_, err := combiner.Do(ctx, "request", measuredKey+"/combined")
		return err
	}, close: combiner.Close}, nil
}

// newRequest returns a request with a key of its own.
func newRequest() idempotency.Request {
	key := rand.Text()
	return idempotency.Request{Client: owner, Key: key, Fingerprint: sha256.Sum256([]byte(key))}
}

// openIdempotent measures a transaction that locks the row of A6, with the key of its request.
func openIdempotent(ctx context.Context, cfg Config) (subject, error) {
	pool, err := openTables(ctx, cfg)
	if err != nil {
		return subject{}, err
	}
	db, err := pgtx.New(pgtx.Config{Pool: pool})
	if err == nil {
		err = db.Read(ctx, pgtx.Migrate)
	}
	if err == nil {
		_, err = pool.Exec(ctx, `TRUNCATE idempotency_keys`) // of the measurements before
	}
	if err != nil {
		pool.Close()
		return subject{}, err
	}
	return subject{once: func(ctx context.Context) error {
		_, err := db.Do(ctx, newRequest(), func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			_, err := pgtx.Select[int](ctx, tx, `SELECT 1 FROM lock_rows WHERE key = $1 FOR UPDATE NOWAIT`, measuredKey)
			return idempotency.Reply{Status: statusDone}, err
		})
		return err
	}, close: pool.Close}, nil
}

// openTransfer makes a payment after another, in tables of its own that begin empty.
func openTransfer(ctx context.Context, cfg Config) (_ subject, err error) {
	var closers []func()
	closeAll := func() {
		for _, f := range slices.Backward(closers) {
			f()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	client, err := etcdClient(cfg, &link{})
	if err != nil {
		return subject{}, err
	}
	closers = append(closers, func() { _ = client.Close() })
	store, err := etcdlock.New(ctx, client, measureTTL, etcdlock.Options{Prefix: cfg.LockPrefix + "-patterns-transfer"})
	if err != nil {
		return subject{}, err
	}
	closers = append(closers, store.Close)
	pool, err := lessonPool(ctx, cfg, "transfer", transfer.Migrate)
	if err != nil {
		return subject{}, err
	}
	closers = append(closers, pool.Close)
	service, err := transfer.New(transfer.Config{Pool: pool, Locks: store, Epoch: store.Epoch(), Strategy: "etcd-fenced"})
	if err != nil {
		return subject{}, err
	}
	closers = append(closers, service.Close)
	move := transfer.Move{From: uuid.New(), To: uuid.New(), Amount: 1, Currency: "EUR"}
	for _, id := range []uuid.UUID{move.From, move.To} {
		if _, err := service.OpenAccount(ctx, transfer.Account{ID: id, Owner: owner, Currency: "EUR", Opening: 1_000_000_00}); err != nil {
			return subject{}, err
		}
	}
	return subject{once: func(ctx context.Context) error {
		_, err := service.Transfer(ctx, newRequest(), move)
		return err
	}, close: closeAll}, nil
}

// lessonPool connects to the tables of a lesson, which begin empty.
func lessonPool(ctx context.Context, cfg Config, lesson string, migrate func(ctx context.Context, databaseURL string) error) (*pgxpool.Pool, error) {
	shop, err := smallPool(ctx, cfg.PostgresURL)
	if err != nil {
		return nil, err
	}
	defer shop.Close()
	s := site{Config: cfg, db: shop}
	if err := shop.QueryRow(ctx, `SELECT current_schema() || '_patterns_' || $1::text`, lesson).Scan(&s.name); err != nil {
		return nil, err
	}
	tablesURL, err := makeTables(ctx, s, migrate)
	if err != nil {
		return nil, err
	}
	return smallPool(ctx, tablesURL)
}
