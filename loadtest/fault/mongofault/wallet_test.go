// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest/internal/testbed"
	"shop/wallet"
)

// pair is two wallets of one owner, and replicas with a proxy each.
type pair struct {
	t        *testing.T
	db       *mongo.Database // without a proxy
	proxies  []*Proxy
	replicas []*wallet.Service
	owner    uuid.UUID
	wallets  [2]uuid.UUID

	mu     sync.Mutex
	events map[wallet.EventKind]int64
}

func newPair(t *testing.T, url, strategy string, replicas int) *pair {
	t.Helper()
	db := connectAs(t, url).Database("fault_" + bson.NewObjectID().Hex())
	t.Cleanup(func() { _ = db.Drop(context.Background()) })
	if err := wallet.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	c := &pair{t: t, db: db, owner: uuid.New(), wallets: [2]uuid.UUID{uuid.New(), uuid.New()}, events: map[wallet.EventKind]int64{}}
	past, err := wallet.New(wallet.Config{Database: db})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range c.wallets {
		if _, err := past.OpenWallet(t.Context(), wallet.Wallet{ID: id, Owner: c.owner, Currency: "EUR", Opening: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	for range replicas {
		w := newProxy(t, url)
		svc, err := wallet.New(wallet.Config{
			Database: connectAs(t, w.URL()).Database(db.Name()),
			Strategy: strategy, Count: c.count,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.proxies, c.replicas = append(c.proxies, w), append(c.replicas, svc)
	}
	return c
}

func (c *pair) count(kind wallet.EventKind, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[kind]++
}

// connectAs creates a client with the shop's settings.
func connectAs(t *testing.T, url string) *mongo.Client {
	t.Helper()
	o, err := wallet.ClientOptions(url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// churn runs clients against each replica that credit, debit (often too much) and pay until
// ctx ends, at least once. Each client repeats an operation until it has an answer. churn
// returns the number of operations.
func (c *pair) churn(ctx context.Context, clients int) int64 {
	var done atomic.Int64
	var working sync.WaitGroup
	for n, svc := range c.replicas {
		for k := range clients {
			working.Go(func() {
				for i := n + k; i == n+k || ctx.Err() == nil; i++ {
					req := wallet.Request{Client: c.owner, Key: uuid.NewString(), Fingerprint: sha256.Sum256(nil)}
					for {
						if err := c.operate(svc, req, i); err == nil {
							break
						}
					}
					done.Add(1)
				}
			})
		}
	}
	working.Wait()
	return done.Load()
}

func (c *pair) operate(svc *wallet.Service, req wallet.Request, i int) (err error) {
	from, to := c.wallets[i%2], c.wallets[1-i%2]
	switch i % 3 {
	case 0:
		_, err = svc.Credit(c.t.Context(), req, from, 7)
	case 1:
		_, err = svc.Debit(c.t.Context(), req, from, 400)
	default:
		_, err = svc.Pay(c.t.Context(), req, wallet.Payment{From: from, To: to, Amount: 3})
	}
	return err
}

// wrong returns the difference between the balances and the sums of the entries.
func (c *pair) wrong() int64 {
	c.t.Helper()
	sumOf := func(collection, expression string) int64 {
		cursor, err := c.db.Collection(collection).Aggregate(c.t.Context(), mongo.Pipeline{
			{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "sum", Value: bson.D{{Key: "$sum", Value: expression}}}}}},
		})
		var found []struct{ Sum int64 }
		if err == nil {
			err = cursor.All(c.t.Context(), &found)
		}
		if err != nil || len(found) != 1 {
			c.t.Fatalf("%d sums, %v", len(found), err)
		}
		return found[0].Sum
	}
	return sumOf("wallets", "$balance") - sumOf("wallets", "$opening") - sumOf("wallet_entries", "$delta")
}

func (c *pair) operations() int64 {
	c.t.Helper()
	n, err := c.db.Collection("wallet_operations").CountDocuments(c.t.Context(), bson.D{})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// The proxy's findings on the strategies of package wallet, under collisions.
func TestBreaches_OfEachStrategy(t *testing.T) {
	for strategy, want := range map[string]string{
		"lockid": "", "combined": "", "inc": "", "lock-late": "", "txn": "R1", "constant-lock": "R2", "naive": "R3",
	} {
		t.Run(strategy, func(t *testing.T) {
			c := newPair(t, testbed.Env(t, "SHOP_MONGO_URL"), strategy, 2)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			done := c.churn(ctx, 3)
			heard, rules := int64(0), map[string]bool{}
			for _, w := range c.proxies {
				n, breaches := w.Breaches(strategy)
				heard += n
				for _, b := range breaches {
					rules[b[:2]] = true
				}
				if strategy == "naive" || len(breaches) > 0 {
					t.Logf("%q", breaches)
				}
			}
			t.Logf("%d operations, %d transactions, %v", done, heard, c.events)
			if (heard == 0) != (strategy == "naive") {
				t.Errorf("%d transactions", heard)
			}
			if want == "" && len(rules) != 0 || want != "" && (!rules[want] || len(rules) != 1) {
				t.Errorf("breaches of %v, want %q", rules, want)
			}
		})
	}
}
