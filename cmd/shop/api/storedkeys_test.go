// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/idempotency/pgtx"
	"shop/wallet"
)

// capped allows each client so many stored keys, and counts them at this interval.
func capped(keys int64, every time.Duration) option {
	return func(c *api.Config, _ *inventory.Config) { c.Limits.Keys, c.Limits.Count = keys, every }
}

// wantFull checks the refusal of a new key.
func wantFull(t *testing.T, a answer) {
	t.Helper()
	a.want(t, 429, api.TypeRateLimited)
	if a.header.Get("Retry-After") != "30" || !strings.Contains(a.problem.Detail, "stored for 24 hours") {
		t.Errorf("Retry-After %q, %s", a.header.Get("Retry-After"), a.body)
	}
}

func TestStoredKeys_AFullClientGetsOnlyItsKnownReplies(t *testing.T) {
	t.Parallel()
	s := open(t, capped(3, time.Nanosecond))
	first := s.buy("k1", "coffee", "1").want(t, 201, "")
	s.buy("k2", "last-one", "5").want(t, 409, api.TypeOutOfStock) // a refusal is stored too
	s.buy("k3", "coffee", "1").want(t, 201, "")                   // with one less than the cap
	wantFull(t, s.buy("k4", "coffee", "1"))
	wantFull(t, s.do("POST", "/v1/orders/"+first.order(t).ID.String()+"/cancel", "", "Idempotency-Key: c"))
	wantFull(t, s.do("POST", "/v1/transfers", `{"from":"`+first.order(t).ID.String()+`","to":"`+s.ids["bob"].String()+`","amount":1,"currency":"EUR"}`, "Idempotency-Key: t"))
	if n := s.refused("stored_keys"); n != 3 {
		t.Errorf("%v refusals counted, want 3", n)
	}
	mustReplay(t, "a known key", first, s.buy("k1", "coffee", "1"))
	s.buy("k1", "coffee", "2").want(t, 422, api.TypeIdempotencyKeyReused)
	s.do("GET", "/v1/products", "").want(t, 200, "")
	s.buy("k4", "coffee", "1", s.as("bob")).want(t, 201, "")
	s.wantStock("coffee", 97)

	if _, err := s.pool.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = created_at - interval '25 hours' WHERE key = 'k2'`); err != nil {
		t.Fatal(err)
	}
	wantFull(t, s.buy("k4", "coffee", "1"))
	if n := must(pgtx.Purge(t.Context(), s.pool, pgtx.KeysKept))(t); n != 1 {
		t.Fatalf("%d purged, want 1", n)
	}
	s.buy("k4", "coffee", "1").want(t, 201, "")
	wantFull(t, s.buy("k5", "coffee", "1"))
}

// The cap is soft: within an interval a replica goes by its last count. Another replica counts for itself.
func TestStoredKeys_AreCountedOnceInAnInterval(t *testing.T) {
	t.Parallel()
	s := open(t, capped(1, time.Hour))
	for _, key := range []string{"k1", "k2", "k3"} {
		s.buy(key, "coffee", "1").want(t, 201, "")
	}
	another := s.besideWith(func(*api.Config) {})
	wantFull(t, another.buy("k4", "coffee", "1"))
	if _, err := s.pool.Exec(t.Context(), `DELETE FROM idempotency_keys`); err != nil {
		t.Fatal(err)
	}
	wantFull(t, another.buy("k4", "coffee", "1"))
	s.buy("k4", "coffee", "1").want(t, 201, "")
}

// A client that disconnects while its keys are counted would otherwise never be full.
func TestStoredKeys_AreCountedAlsoForAClientThatDisconnects(t *testing.T) {
	t.Parallel()
	s := open(t, capped(1, time.Nanosecond))
	s.buy("k1", "coffee", "1").want(t, 201, "")
	gone, leave := context.WithCancel(t.Context())
	leave()
	if !s.server.KeysFull(gone, s.ids["alice"]) || s.server.KeysFull(gone, s.ids["bob"]) {
		t.Error("want alice full, and bob not")
	}
}

func TestStoredKeys_OfWalletsAreTheRefusals(t *testing.T) {
	t.Parallel()
	s := openWallets(t, capped(2, time.Nanosecond))
	a, b := s.wallet("alice", 100), s.wallet("bob", 100)
	for _, key := range []string{"c1", "c2", "c3"} { // entries of the ledger, which are kept for ever
		s.credit(key, a, "100").want(t, 201, "")
	}
	first := s.debit("d1", a, "9999").want(t, 409, api.TypeInsufficientFunds)
	s.debit("d2", a, "9999").want(t, 409, api.TypeInsufficientFunds)
	wantFull(t, s.debit("d3", a, "1"))
	wantFull(t, s.credit("c4", a, "1"))
	mustReplay(t, "a known key", first, s.debit("d1", a, "9999"))
	s.credit("c1", a, "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.debit("d3", b, "1", s.as("bob")).want(t, 201, "")
	s.buy("o", "coffee", "1").want(t, 201, "") // orders have another store
	s.wantCash("alice", a, 430)

	operations := s.walletBackend.db.Collection("wallet_operations")
	aged := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", (25 * time.Hour).Milliseconds()}}}}}}}}
	if _, err := operations.UpdateMany(t.Context(), bson.D{{Key: "key", Value: "d1"}}, aged); err != nil {
		t.Fatal(err)
	}
	if n := must(wallet.Purge(t.Context(), s.walletBackend.db, wallet.KeysKept))(t); n != 1 {
		t.Fatalf("%d purged, want 1", n)
	}
	s.debit("d3", a, "1").want(t, 201, "")
}
