// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/servertest"
)

// Two credits at once: MongoDB aborts the one that writes second. It is not lost in silence, but it is not made.
func TestCreditOnce_TheSecondWriterFails(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().ApplyURI(servertest.Env(t, "SHOP_MONGO_URL")))
	if err != nil {
		t.Fatal(err)
	}
	database := client.Database("wrong_" + rand.Text())
	t.Cleanup(func() {
		_ = database.Drop(context.Background())
		_ = client.Disconnect(context.Background())
	})
	wallets := database.Collection("wallets")
	if _, err := wallets.InsertOne(t.Context(), bson.M{"_id": "anna", "balance": 100}); err != nil {
		t.Fatal(err)
	}
	err = CreditOnce(t.Context(), wallets, "anna", 10, func() {
		if err := CreditOnce(t.Context(), wallets, "anna", 1, func() {}); err != nil {
			t.Errorf("the first writer: %v", err)
		}
	})
	var command mongo.CommandError
	if !errors.As(err, &command) || command.Name != "WriteConflict" || !command.HasErrorLabel("TransientTransactionError") {
		t.Errorf("the second writer: %v, want WriteConflict, with the label that says: begin again", err)
	}
	var w struct{ Balance int64 }
	if err := wallets.FindOne(t.Context(), bson.M{"_id": "anna"}).Decode(&w); err != nil || w.Balance != 101 {
		t.Errorf("the balance is %d, %v, want 101: the credit of 10 has failed", w.Balance, err)
	}
}
