// SPDX-License-Identifier: MIT

package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"shop/wallet"
)

var (
	//go:embed inventory.sql
	inventorySQL string
	//go:embed transfer.sql
	transferSQL string
)

// seed fills the tables and the collections. Everything is older than a key is kept, and every invariant holds.
func (s *stores) seed(ctx context.Context, rows int) error {
	stores, ctx := errgroup.WithContext(ctx)
	stores.Go(func() error { return s.seedPostgres(ctx, rows) })
	stores.Go(func() error { return seedWallets(ctx, s.db, rows) })
	return stores.Wait()
}

func (s *stores) seedPostgres(ctx context.Context, rows int) error {
	for _, text := range []string{inventorySQL, transferSQL} {
		sql := strings.ReplaceAll(text, "{{rows}}", strconv.Itoa(rows))
		if _, err := s.conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("seed PostgreSQL: %w", err)
		}
	}
	_, err := s.conn.Exec(ctx, "VACUUM ANALYZE")
	return err
}

// entry is a document of wallet_entries.
type entry struct {
	ID        bson.ObjectID `bson:"_id"`
	Operation uuid.UUID     `bson:"operation"`
	Wallet    uuid.UUID     `bson:"wallet"`
	Delta     int64         `bson:"delta"`
	CreatedAt time.Time     `bson:"createdAt"`
}

// operation is a document of wallet_operations.
type operation struct {
	ID          uuid.UUID `bson:"_id"`
	Client      uuid.UUID `bson:"client"`
	Key         string    `bson:"key"`
	Fingerprint []byte    `bson:"fingerprint"`
	Kind        string    `bson:"kind"`
	Wallet      uuid.UUID `bson:"wallet"`
	Amount      int64     `bson:"amount"`
	Bonus       int64     `bson:"bonus"`
	Status      int       `bson:"status"`
	Body        []byte    `bson:"body"`
	Refused     string    `bson:"refused,omitempty"`
	CreatedAt   time.Time `bson:"createdAt"`
}

// seedPage is how many operations of one wallet are inserted at a time.
const seedPage = 1000

// seedWallets makes a wallet for each thousand operations. A tenth of the operations are refusals.
func seedWallets(ctx context.Context, db *mongo.Database, rows int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Hour) // in place of the client's limit, which is that of a request
	defer cancel()
	pages := make(chan struct{}, rows/seedPage)
	for range rows / seedPage {
		pages <- struct{}{}
	}
	close(pages)
	errs := make(chan error, 4)
	var workers sync.WaitGroup
	for range cap(errs) {
		workers.Go(func() {
			for range pages {
				if err := seedWallet(ctx, db); err != nil {
					errs <- fmt.Errorf("seed MongoDB: %w", err)
					return
				}
			}
		})
	}
	workers.Wait()
	close(errs)
	return <-errs
}

func seedWallet(ctx context.Context, db *mongo.Database) error {
	const refusals = seedPage / 10
	var (
		id, client = uuid.New(), uuid.New()
		at         = time.Now().Add(-3 * 24 * time.Hour)
		operations = make([]operation, seedPage)
		entries    = make([]entry, 0, seedPage-refusals)
	)
	for i := range operations {
		o := operation{
			ID: uuid.New(), Client: client, Key: strconv.Itoa(i), Fingerprint: make([]byte, 32), Kind: string(wallet.Credit),
			Wallet: id, Amount: 1, Status: 201, Body: []byte("{}"), CreatedAt: at,
		}
		if i < refusals {
			o.Kind, o.Status, o.Refused = string(wallet.Debit), 409, "insufficient-funds"
		} else {
			entries = append(entries, entry{bson.NewObjectID(), o.ID, id, 1, at})
		}
		operations[i] = o
	}
	balance := int64(len(entries))
	_, err := db.Collection("wallets").InsertOne(ctx, bson.D{
		{Key: "_id", Value: id},
		{Key: "owner", Value: client},
		{Key: "currency", Value: "EUR"},
		{Key: "opening", Value: int64(0)},
		{Key: "balance", Value: balance},
		{Key: "lockId", Value: bson.NewObjectID()},
		{Key: "createdAt", Value: at},
		{Key: "updatedAt", Value: at},
	})
	if err != nil {
		return err
	}
	unordered := options.InsertMany().SetOrdered(false)
	if _, err := db.Collection("wallet_entries").InsertMany(ctx, entries, unordered); err != nil {
		return err
	}
	_, err = db.Collection("wallet_operations").InsertMany(ctx, operations, unordered)
	return err
}
