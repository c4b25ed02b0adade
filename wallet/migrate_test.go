// SPDX-License-Identifier: MIT

package wallet_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/servertest"
	"shop/wallet"
	"shop/wallet/mongotest"
)

func TestMigrate_ByManyAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	db := c.db.Client().Database(c.db.Name() + "_again")
	t.Cleanup(func() { mongotest.Drop(t, db) })
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := wallet.Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := wallet.Migrate(t.Context(), db); err != nil {
		t.Error(err)
	}
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if want := []string{"wallet_entries", "wallet_operations", "wallets"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// The last guard: it refuses what this package does not write, but other code could.
func TestSchema_RefusesInvalidDocuments(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	c.done(c.Pay(t.Context(), newRequest(p.alice), p.pay(10)))
	wallets, entries := c.db.Collection("wallets"), c.db.Collection("wallet_entries")
	for name, set := range map[string]bson.D{
		"less than nothing": {{Key: "balance", Value: int64(-1)}},
		"a fraction":        {{Key: "balance", Value: 0.5}},
		"a string":          {{Key: "balance", Value: "100"}},
		"no currency":       {{Key: "currency", Value: "euro"}},
		"an unknown field":  {{Key: "limit", Value: 1}},
	} {
		_, err := wallets.UpdateByID(t.Context(), p.a, bson.D{{Key: "$set", Value: set}})
		if server := mongo.ServerError(nil); !errors.As(err, &server) || !server.HasErrorCode(121) {
			t.Errorf("%s: %v, want the server to refuse it", name, err)
		}
	}
	twice := wallet.Entry{Operation: c.stored()[0].ID, Wallet: p.a, Delta: -10, CreatedAt: time.Now()}
	if _, err := entries.InsertOne(t.Context(), twice); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("an operation touched a wallet twice: %v", err)
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	db := mongotest.Connect(t, servertest.Env(t, "SHOP_MONGO_URL")).Database("nothing")
	for name, cfg := range map[string]wallet.Config{
		"no database":      {},
		"no such strategy": {Database: db, Strategy: "hope"},
	} {
		if _, err := wallet.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := wallet.New(wallet.Config{Database: db}); err != nil {
		t.Errorf("the default: %v", err)
	}
}

func TestStrategies_AreTheTableOfTheLesson(t *testing.T) {
	t.Parallel()
	if got := all(); !slices.Equal(got, []string{"naive", "txn", "constant-lock", "lock-late", "inc", "lockid", "combined"}) {
		t.Errorf("%q", got)
	}
	if got := safe(); !slices.Equal(got, []string{"inc", "lockid", "combined"}) {
		t.Errorf("safe: %q", got)
	}
	for _, s := range wallet.Strategies() {
		if !slices.Equal(s.Stores, []string{"mongo"}) || s.Why == "" {
			t.Errorf("%+v", s)
		}
		s.Stores[0] = "changed by a caller"
	}
	if wallet.Strategies()[0].Stores[0] != "mongo" {
		t.Error("a caller changed the table")
	}
}

func TestWith_IsTheSameServiceUnderAnotherStrategy(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	inc, err := c.With("inc")
	if err != nil {
		t.Fatal(err)
	}
	c.done(inc.Pay(t.Context(), newRequest(p.alice), p.pay(30)))
	c.mustHave(p.a, 70)
	if _, err := c.With("hope"); !errors.Is(err, wallet.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

func TestOpenWallet_IsDoneOnce(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	w := wallet.Wallet{ID: uuid.New(), Owner: uuid.New(), Currency: "EUR", Opening: 100}
	var wg sync.WaitGroup
	opened := make([]bool, 8)
	for i := range opened {
		wg.Go(func() {
			var err error
			if opened[i], err = c.OpenWallet(t.Context(), w); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(slices.DeleteFunc(opened, func(o bool) bool { return !o })); n != 1 {
		t.Errorf("opened %d times", n)
	}
	c.done(c.Debit(t.Context(), newRequest(w.Owner), w.ID, 40))
	w.Opening, w.Currency = 5, "USD"
	if again, err := c.OpenWallet(t.Context(), w); again || err != nil {
		t.Errorf("opened again: %v, %v", again, err)
	}
	c.mustHave(w.ID, 60)
	for _, bad := range []wallet.Wallet{{Currency: "EUR", Opening: -1}, {Currency: "eur"}, {Currency: "$NOW"}, {Opening: 1}} {
		if _, err := c.OpenWallet(t.Context(), bad); !errors.Is(err, wallet.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
}

func TestWallet_ShowsItsOwnerBalanceAndLatestEntries(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(1000, 0)
	for n := range int64(25) {
		c.done(c.Pay(t.Context(), newRequest(p.alice), p.pay(n+1)))
	}
	w, err := c.Wallet(t.Context(), p.alice, p.a)
	if err != nil {
		t.Fatal(err)
	}
	if w.Balance != 1000-25*26/2 || w.Opening != 1000 || w.Currency != "EUR" || w.Owner != p.alice || len(w.Entries) != 20 {
		t.Errorf("%+v", w)
	}
	for i, e := range w.Entries {
		if e.Delta != int64(i)-25 || e.Wallet != p.a {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
	if age := time.Since(w.CreatedAt); age < -time.Minute || age > time.Minute {
		t.Errorf("made %v ago", age)
	}
	for _, client := range []uuid.UUID{p.bob, uuid.New()} {
		if _, err := c.Wallet(t.Context(), client, p.a); !errors.Is(err, wallet.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
}
