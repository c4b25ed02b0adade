// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency"
	"shop/locking/invariant"
	"shop/wallet"
	"shop/wallet/bonus"
)

// The hot wallet. Its owner is that of the accounts.
var hotWallet = uuid.MustParse("00000000-0000-7000-8000-00000000000c")

// noQueue is the baseline lockid without its queue.
const noQueue = "lockid-no-queue"

// prepareWallet makes a database in MongoDB with the wallet, and a bonus service on a loopback port.
func prepareWallet(ctx context.Context, p *place) (drop func() error, err error) {
	db, err := p.mongo()
	if err != nil {
		return nil, err
	}
	service, err := bonus.Serve()
	if err != nil {
		return nil, err
	}
	p.Bonus = service.URL()
	drop = func() error {
		ctx := context.WithoutCancel(ctx) // the client's options bound each statement
		_ = service.Close()
		defer func() { _ = db.Client().Disconnect(ctx) }()
		return db.Drop(ctx)
	}
	if err := wallet.Migrate(ctx, db); err != nil {
		return drop, err
	}
	opener, err := wallet.New(wallet.Config{Database: db})
	if err == nil {
		_, err = opener.OpenWallet(ctx, wallet.Wallet{ID: hotWallet, Owner: owner, Currency: "EUR"})
	}
	return drop, err
}

func (p place) mongo() (*mongo.Database, error) {
	options, err := wallet.ClientOptions(os.Getenv("SHOP_MONGO_URL"))
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options)
	if err != nil {
		return nil, err
	}
	return client.Database(p.Prefix), nil
}

// clientsMax bounds the clients of a row, which wait in one queue.
const clientsMax = 1024

// credits opens a Service whose queue has room for all clients, and returns a function that credits the wallet. The
// bonus service takes a time for each call.
func credits(p place, strategy string, work time.Duration) (request func(context.Context) error, done func(), err error) {
	db, err := p.mongo()
	if err != nil {
		return nil, nil, err
	}
	calls := bonus.NewClient(p.Bonus, nil)
	config := wallet.Config{
		Database: db, Strategy: strategy,
		QueueMax: 4 * clientsMax, // one client may have a quarter of it
		Bonus: func(ctx context.Context, b wallet.BonusRequest) (int64, error) {
			time.Sleep(work)
			return calls.Call(ctx, b)
		},
		Encode: func(op wallet.Operation, err error) (wallet.Reply, error) { return encode(op, err, 0) },
	}
	if strategy == noQueue {
		config.Strategy, config.QueueMax = "lockid", -1
	}
	service, err := wallet.New(config)
	if err != nil {
		return nil, nil, err
	}
	request = func(ctx context.Context) error {
		req := idempotency.Request{Client: owner, Key: uuid.NewString(), Fingerprint: [32]byte{1}}
		return answered(func() error {
			_, err := service.Credit(ctx, req, hotWallet, 10)
			return err
		})
	}
	return request, func() {
		service.Close()
		_ = db.Client().Disconnect(context.Background())
		calls.Close()
	}, nil
}

func auditWallet(ctx context.Context, p place) (invariant.Findings, error) {
	db, err := p.mongo()
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Client().Disconnect(ctx) }()
	return invariant.Run(ctx, wallet.Invariants.Checks, wallet.Pipelines(db))
}
