// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency"
	"shop/locking/invariant"
	"shop/wallet"
	"shop/wallet/bonus"
)

// The hot wallet. Its owner is that of the accounts.
var hotWallet = uuid.MustParse("00000000-0000-7000-8000-00000000000c")

// noQueue is the strategy lockid without its queue.
const noQueue = "lockid-no-queue"

// prepareWallet makes a database in MongoDB with the wallet, and a bonus service on a loopback port.
func prepareWallet(b *testing.B) (p place) {
	service, err := bonus.Serve()
	must(b, err)
	b.Cleanup(func() { _ = service.Close() })
	p.Prefix, p.Bonus = newPrefix(), service.URL()
	db, err := p.mongo()
	must(b, err)
	b.Cleanup(func() {
		must(b, db.Drop(context.Background()))
		_ = db.Client().Disconnect(context.Background())
	})
	must(b, wallet.Migrate(b.Context(), db))
	opener, err := wallet.New(wallet.Config{Database: db})
	must(b, err)
	_, err = opener.OpenWallet(b.Context(), wallet.Wallet{ID: hotWallet, Owner: owner, Currency: "EUR"})
	must(b, err)
	return p
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

// credits opens a Service whose queue has room for all clients. A request credits the wallet. The bonus service takes a time
// for each call.
func credits(_ context.Context, t turn) (request func(context.Context) error, done func(), err error) {
	db, err := t.Place.mongo()
	if err != nil {
		return nil, nil, err
	}
	calls := bonus.NewClient(t.Place.Bonus, nil)
	config := wallet.Config{
		Database: db, Strategy: t.Strategy,
		QueueMax: 4 * clientsMax, // one client may have a quarter of it
		Bonus: func(ctx context.Context, b wallet.BonusRequest) (int64, error) {
			time.Sleep(t.Work)
			return calls.Call(ctx, b)
		},
		Encode: func(op wallet.Operation, err error) (wallet.Reply, error) { return encode(op, err, 0) },
	}
	if t.Strategy == noQueue {
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

// walletTransactions returns how many transactions have made the operations. Those of a batch have the time of its only write
// to the wallet, and batches take longer than the millisecond of a time.
func walletTransactions(ctx context.Context, p place) (int, error) {
	db, err := p.mongo()
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Client().Disconnect(ctx) }()
	var times []any
	err = db.Collection("wallet_operations").Distinct(ctx, "createdAt", bson.D{}).Decode(&times)
	return len(times), err
}

// walletInserter inserts one document, which a majority has in its journal.
func walletInserter(ctx context.Context, p place) (insert func() error, done func(), err error) {
	db, err := p.mongo()
	if err != nil {
		return nil, nil, err
	}
	return func() error { _, err := db.Collection("commits").InsertOne(ctx, bson.D{}); return err },
		func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }, nil
}
