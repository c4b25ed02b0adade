// SPDX-License-Identifier: MIT

package mongolock_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The code that docs/wallet.md offers for copying is correct without a queue. Here its
// callers collide and send each key twice at once. A caller that fails retries with its
// key.
func TestPlainShape_LosesNothingAndAsksOnceForEachKey(t *testing.T) {
	t.Parallel()
	client, err := connect(os.Getenv("SHOP_MONGO_URL"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("plain_" + bson.NewObjectID().Hex())
	t.Cleanup(func() { _ = db.Drop(context.Background()) })
	if err := db.CreateCollection(t.Context(), "operations"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Collection("wallets").InsertOne(t.Context(), bson.M{"_id": "anna", "balance": 100}); err != nil {
		t.Fatal(err)
	}
	const keys = 6
	var callers sync.WaitGroup
	var asked [keys]atomic.Int64
	for n := range 2 * keys {
		callers.Go(func() {
			bonus := func(_ context.Context, op operation) (int64, error) {
				asked[n/2].Add(1)
				return op.Amount / 10, nil
			}
			want := operation{Key: fmt.Sprint("k", n/2), Wallet: "anna", Amount: 10}
			_, err := credit(t.Context(), db, bonus, want)
			for err != nil && t.Context().Err() == nil {
				_, err = credit(t.Context(), db, bonus, want)
			}
		})
	}
	callers.Wait()
	var w struct{ Balance int64 }
	if err := db.Collection("wallets").FindOne(t.Context(), bson.M{"_id": "anna"}).Decode(&w); err != nil || w.Balance != 100+keys*11 {
		t.Errorf("balance %d, %v, want %d", w.Balance, err, 100+keys*11)
	}
	for n := range asked {
		if times := asked[n].Load(); times != 1 {
			t.Errorf("k%d: the bonus service was called %d times, want once", n, times)
		}
	}
}
