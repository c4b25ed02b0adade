// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/locking/locktest"
)

func TestWatchWallets_SeesThatBalancesAndEntriesDiffer(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	clock := time.Now()
	watching, stop := context.WithCancel(t.Context())
	var samples []judge.Sample
	var looks atomic.Int32
	done := make(chan error, 1)
	go func() {
		var err error
		samples, err = sample(watching, db, planOf, func() time.Duration { looks.Add(1); return time.Since(clock) })
		done <- err
	}()
	await := func(n int32) {
		for looks.Load() < n && fault.Wait(t.Context(), 5*time.Millisecond) {
		}
	}
	await(2) // the first sample is taken
	do(t, db, update("wallets", byID(wallet1), `{"$inc": {"balance": -110}}`)+update("wallets", byID(wallet2), `{"$inc": {"balance": -300}}`))
	await(looks.Load() + 3)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	first, last := samples[0].Levels, samples[len(samples)-1].Levels
	if want := []judge.Level{{Name: "balances", Says: 1575, True: 1575}, {Name: money.DriftLevel, Says: 0}, {Name: "wallets below 0", Says: 0}}; !slices.Equal(first, want) {
		t.Errorf("first %+v, want %+v", first, want)
	}
	if want := []judge.Level{{Name: "balances", Says: 1165, True: 1575}, {Name: money.DriftLevel, Says: 410}, {Name: "wallets below 0", Says: 1}}; !slices.Equal(last, want) {
		t.Errorf("last %+v, want %+v", last, want)
	}
	if found := judge.Apart(samples); len(found) < 3 || len(judge.Apart(samples[:1])) != 0 {
		t.Errorf("apart: %v", found)
	}
}

// A sample never shows half of a transaction.
func TestWatchWallets_EachSampleIsOneSnapshot(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	settled(t, db)
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan []judge.Sample, 1)
	go func() {
		samples, err := sample(watching, db, planOf, func() time.Duration { return 0 })
		if err != nil {
			t.Error(err)
		}
		watched <- samples
	}()
	for range 200 {
		payment(t, db)
	}
	stop()
	if found := judge.Apart(<-watched); len(found) != 0 {
		t.Errorf("apart: %v", found)
	}
}

// settled waits until transactions see correctWallets. A transaction's snapshot is taken before the
// oldest commit under way on the server, which may be another test's.
func settled(t *testing.T, db *mongo.Database) {
	t.Helper()
	locktest.Eventually(t, "a transaction sees the entries", func() bool {
		var n int64
		err := db.Client().UseSession(t.Context(), func(ctx context.Context) (err error) {
			session := mongo.SessionFromContext(ctx)
			if err := session.StartTransaction(); err != nil {
				return err
			}
			n, err = db.Collection("wallet_entries").CountDocuments(ctx, bson.D{})
			return errors.Join(err, session.AbortTransaction(ctx))
		})
		return err == nil && n == 5
	})
}

// payment moves a unit, as the shop would, in a transaction.
func payment(t *testing.T, db *mongo.Database) {
	t.Helper()
	err := db.Client().UseSession(t.Context(), func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			wallets, entries := db.Collection("wallets"), db.Collection("wallet_entries")
			one, other := uuidValue(uuid.MustParse(wallet1)), uuidValue(uuid.MustParse(wallet2))
			operation := uuidValue(uuid.New())
			for wallet, delta := range map[*bson.Binary]int64{&one: -1, &other: 1} {
				if _, err := wallets.UpdateByID(ctx, wallet, bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: delta}}}}); err != nil {
					return nil, err
				}
				if _, err := entries.InsertOne(ctx, bson.D{{Key: "operation", Value: operation}, {Key: "wallet", Value: wallet}, {Key: "delta", Value: delta}}); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchWallets_AnUnreadableDatabaseIsAnErrorAtOnce(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, insert("anything", `{"a": 1}`)+`{"create": "wallet_entries", "viewOn": "anything", "pipeline": [{"$project": {"delta": {"$divide": ["$a", 0]}}}]}`)
	if _, err := sample(t.Context(), db, planOf, func() time.Duration { return 0 }); err == nil {
		t.Error("no error although the server refuses the read")
	}
}

// The service's own openings must not matter while the load runs either.
func TestWatchWallets_SeesARaisedOpeningAndAnUnplannedWallet(t *testing.T) {
	for name, c := range map[string]struct {
		do   string
		want int
	}{
		"as it was opened": {``, 0},
		"both raised":      {raisedAlike, 2}, // the sum, and the drift
		"an extra wallet":  {walletBeside, 2},
		"one is missing":   {removedWallet, 2},
	} {
		ctx, stop := context.WithCancel(t.Context())
		looks := 0
		samples, err := sample(ctx, violated(t, violation{do: c.do}), planOf, func() time.Duration {
			if looks++; looks > 1 {
				stop()
			}
			return 0
		})
		stop()
		if err != nil {
			t.Fatal(err)
		}
		if found := judge.Apart(samples); len(found) != c.want {
			t.Errorf("%s: %v, want %d", name, found, c.want)
		}
	}
}
