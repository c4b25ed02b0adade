// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

func TestProxy_LargeAndManyDocumentsPass(t *testing.T) {
	c := newTalk(t)
	large := strings.Repeat("x", 15<<20)
	operations := c.db.Collection("wallet_operations")
	if _, err := operations.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "large", Value: large}}); err != nil {
		t.Fatal(err)
	}
	var found struct{ Large string }
	if err := operations.FindOne(t.Context(), field("_id", 1)).Decode(&found); err != nil || found.Large != large {
		t.Errorf("%d bytes came back, %v", len(found.Large), err)
	}
	many := make([]bson.D, 5000)
	for i := range many {
		many[i] = field("_id", i)
	}
	entries := c.db.Collection("wallet_entries")
	if _, err := entries.InsertMany(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	cursor, err := entries.Find(t.Context(), bson.D{})
	if err == nil {
		err = cursor.All(t.Context(), &many)
	}
	if err != nil || len(many) != 5000 {
		t.Errorf("%d came back, %v", len(many), err)
	}
}

// A client that discovers the members of the set would bypass the proxy.
func TestProxy_URLLeadsToTheProxyAndNoFurther(t *testing.T) {
	w := newProxy(t, "mongodb://one:two@127.0.0.1:1,127.0.0.1:2/shop?replicaSet=r&compressors=zlib&w=1")
	want := "mongodb://one:two@" + w.Addr() + "/shop?appName=mongofault&directConnection=true&w=1"
	if w.URL() != want || len(w.hosts) != 2 || w.hosts[1] != "127.0.0.1:2" {
		t.Errorf("%s to %q, want %s", w.URL(), w.hosts, want)
	}
	for _, url := range []string{"mongodb+srv://host/shop", "mongodb://host/shop?tls=true", "postgres://host/shop", "mongodb:///"} {
		if w, err := NewProxy(url); err == nil {
			w.Close()
			t.Errorf("%s: no error", url)
		}
	}
}

func TestProxy_CloseBreaksConnectionsAndRefusesNewOnes(t *testing.T) {
	url := testbed.Env(t, "SHOP_MONGO_URL")
	db, w := newDatabase(t, url), newProxy(t, url)
	c := talk{t: t, w: w, db: connect(t, w.URL()+"&retryReads=false").Database(db.Name())}
	c.must(c.find)(t.Context())
	c.w.Close()
	c.w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // by default a driver waits longer for a server
	defer cancel()
	for _, what := range []string{"carries", "takes connections"} {
		if err := c.find(ctx); err == nil {
			t.Error("a closed proxy " + what)
		}
	}
}

// eventually repeats an operation that the driver does not retry, until it succeeds.
func eventually(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for err := do(ctx); err != nil; err = do(ctx) {
		if !fault.Wait(ctx, 10*time.Millisecond) {
			t.Fatal(err)
		}
	}
}

func TestProxy_OutlivesItsServer(t *testing.T) {
	t.Parallel()
	url, set := private(t, "mongo")
	db, w := newDatabase(t, url), newProxy(t, url)
	c := talk{t: t, w: w, db: connect(t, w.URL()).Database(db.Name())}
	c.must(c.find)(t.Context())
	if err := set[0].Server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.find(ctx); err == nil {
		t.Error("an answer of a dead server")
	}
	if err := set[0].Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, c.find)
}

func TestBreaches_IsBoundedByTheSessionsAndTheLocks(t *testing.T) {
	c := newTalk(t)
	for range 50 {
		c.must(c.find)(t.Context())
		if err := c.transact(c.must(c.newLock), c.must(c.find)); err != nil {
			t.Fatal(err)
		}
	}
	e := c.w.recorder
	if e.count != 50 || len(e.open) > 2 || len(e.lockIDs) != 50 || len(e.breaches) != 1 {
		t.Errorf("%d transactions, %d sessions, %d locks, %d kinds of breach", e.count, len(e.open), len(e.lockIDs), len(e.breaches))
	}
}

func BenchmarkProxy(b *testing.B) {
	url := testbed.Env(b, "SHOP_MONGO_URL")
	db := newDatabase(b, url)
	for name, url := range map[string]string{"without": url, "with": newProxy(b, url).URL()} {
		wallets := connect(b, url).Database(db.Name()).Collection("wallets")
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := wallets.FindOne(b.Context(), bson.D{{Key: "_id", Value: 1}}).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
