// SPDX-License-Identifier: MIT

package wallet

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/soak"
	"shop/wallet"
	"shop/wallet/bonus/bonustest"
)

// archived returns stores with correctWallets, whose operations are new, after an archive.
func archived(t *testing.T) *Stores {
	t.Helper()
	db, _ := ownMongo(t)
	do(t, db, correctWallets()+update("wallet_operations", "{}", `[{"$set": {"createdAt": "$$NOW"}}]`))
	own := &Stores{db: db, bonus: bonustest.Serve(t)}
	if err := archive(t.Context(), &loadtest.Trial{State: own}); err != nil {
		t.Fatal(err)
	}
	return own
}

func count(t *testing.T, db *mongo.Database, collection string) int64 {
	t.Helper()
	n, err := db.Collection(collection).CountDocuments(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestArchive_KeepsOnlyRefusalsAndDatesThemForThePurge(t *testing.T) {
	own := archived(t)
	for _, collection := range []string{"wallets", "wallet_entries"} {
		if n := count(t, own.db, collection); n != 0 {
			t.Errorf("%d %s", n, collection)
		}
	}
	if n := count(t, own.db, "wallet_operations"); n != 1 {
		t.Errorf("%d operations, want the refusal", n)
	}
	if n, err := wallet.Purge(t.Context(), own.db, wallet.KeysKept); err != nil || n != 1 {
		t.Errorf("%d purged, %v", n, err)
	}
}

// A refusal that the purge has left would look like an operation without a request in the next shift.
func TestSetAside_ARefusalThatWasNotPurgedIsStillCounted(t *testing.T) {
	own := archived(t)
	if err := own.setAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, own.db, "wallet_operations"); n != 0 {
		t.Errorf("%d operations", n)
	}
	if n := count(t, own.db, soak.Unpurged); n != 1 {
		t.Errorf("%d set aside, want 1", n)
	}
}
