// SPDX-License-Identifier: MIT

package mongolock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
	"shop/locking/locktest"
)

// state is the document of a key.
type state struct {
	Fence   int64      `bson:"fence"`
	Owner   *string    `bson:"owner"`
	Expires *time.Time `bson:"expires"`
}

func stateOf(t testing.TB, s *opened, key string) (d state) {
	t.Helper()
	if err := s.grants.FindOne(t.Context(), bson.D{{Key: "_id", Value: key}}).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// serverTime reads the clock of the primary.
func serverTime(t testing.TB, s *opened) time.Time {
	t.Helper()
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	if err := s.grants.Database().RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	return hello.LocalTime
}

// expired makes the lease of key expire at once.
func expired(t testing.TB, s *opened, key string) {
	t.Helper()
	_, err := s.grants.UpdateByID(t.Context(), key, bson.D{{Key: "$set", Value: bson.D{{Key: "expires", Value: time.UnixMilli(1)}}}})
	if err != nil {
		t.Fatal(err)
	}
}

// T20: the server computes the expiry, to the millisecond.
func TestExpiry_IsSetByTheServersClock(t *testing.T) {
	t.Parallel()
	const ttl = 15_500 * time.Millisecond
	store := newStore(t, ttl)
	exact := func(what string, before time.Time) {
		t.Helper()
		after, got := serverTime(t, store), *stateOf(t, store, "k").Expires
		if got.Before(before.Add(ttl)) || got.After(after.Add(ttl)) {
			t.Errorf("%s between %v and %v: expires %v", what, before, after, got)
		}
	}
	before := serverTime(t, store)
	lease := locktest.Taken(t, store, "k")
	exact("acquired", before)
	before = serverTime(t, store)
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	exact("renewed", before)
}

// The document is never deleted, because it holds the fence.
func TestRelease_KeepsTheFence(t *testing.T) {
	t.Parallel()
	store := newStore(t, time.Minute)
	for want := int64(1); want < 4; want++ {
		lease := locktest.Taken(t, store, "k")
		if err := store.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if d := stateOf(t, store, "k"); d.Fence != want || int64(lease.Fence) != want || d.Owner != nil || d.Expires != nil {
			t.Errorf("after %+v: %+v, want fence %d and no owner", lease, d, want)
		}
	}
	lease := locktest.Taken(t, store, "k")
	expired(t, store, "k")
	if next := locktest.Taken(t, beside(t, store), "k"); next.Fence != lease.Fence+1 {
		t.Errorf("fence %d after an expired lease with fence %d", next.Fence, lease.Fence)
	}
}

// T22, T23: an expired lease is neither renewed nor released, whether or not the key has
// had another holder since.
func TestLease_IsLostAfterItsExpiry(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(*opened){
		"free":                  func(*opened) {},
		"another holder has it": func(s *opened) { locktest.Taken(t, beside(t, s), "k") },
		"another holder had it": func(s *opened) { other := beside(t, s); _ = other.Release(t.Context(), locktest.Taken(t, other, "k")) },
		"it was deleted":        func(s *opened) { _, _ = s.grants.DeleteOne(t.Context(), bson.D{}) },
		"its fence is newer": func(s *opened) {
			_, _ = s.grants.UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: "fence", Value: 1}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t, time.Minute)
			lease := locktest.Taken(t, store, "k")
			expired(t, store, "k")
			then(store)
			before, _ := store.grants.FindOne(t.Context(), bson.D{}).Raw()
			if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
				t.Errorf("renew: %v, want ErrLost", err)
			}
			if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
				t.Errorf("release: %v, want ErrLost", err)
			}
			if after, _ := store.grants.FindOne(t.Context(), bson.D{}).Raw(); before.String() != after.String() {
				t.Errorf("%v became %v", before, after)
			}
		})
	}
}

// A duplicate of the request to acquire, delivered when the lease is over, takes the
// key for one TTL, but does not revive the lease.
func TestGhost_AfterTheLeaseDoesNotBringItBack(t *testing.T) {
	t.Parallel()
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "k")
	ghost := func() grant {
		t.Helper()
		g, err := send(t.Context(), store.grants, take("k", lease.Owner, store.ttl))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	if g := ghost(); g.Fence != int64(lease.Fence) {
		t.Errorf("within the lease: fence %d became %d", lease.Fence, g.Fence)
	}
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	next := locktest.Taken(t, store, "k")
	if g := ghost(); g.Owner != next.Owner || g.Fence != int64(next.Fence) {
		t.Errorf("under the next holder: %+v", g)
	}
	if err := store.Release(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if g := ghost(); g.Fence != int64(next.Fence)+1 {
		t.Errorf("on a free key: fence %d after %d", g.Fence, next.Fence)
	}
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: %v, want ErrLost", err)
	}
}

// Whatever the client's settings are, a majority journals each grant, the server stops
// at the Store's time-out, and only the server's clock is used. A release waits for the
// primary alone, and not for its journal.
func TestStore_RequestsHaveWriteConcernAndLimitAndNoClientTime(t *testing.T) {
	t.Parallel()
	weak := options.Client().SetWriteConcern(&writeconcern.WriteConcern{W: 2}).SetTimeout(time.Minute)
	c, sent := spied(t, newCollection(t, mongoURL(t)), "findAndModify", weak)
	store := storeOn(t, c, 6*time.Second)
	lease := locktest.Taken(t, store, "k")
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	releases := 0
	for _, e := range sent() {
		want := `{"w": "majority","j": true}`
		if strings.Contains(e.Command.String(), "$unset") {
			releases++
			want = `{"w": {"$numberInt":"1"}}`
		}
		if got := e.Command.Lookup("writeConcern").String(); got != want {
			t.Errorf("write concern %v, want %v, of %v", got, want, e.Command)
		}
		if ms, ok := e.Command.Lookup("maxTimeMS").AsInt64OK(); !ok || ms > 1000 {
			t.Errorf("limit %d ms, want a sixth of the TTL", ms)
		}
		if strings.Contains(e.Command.String(), "$date") {
			t.Errorf("the command holds a time of the client: %v", e.Command)
		}
	}
	if releases != 1 {
		t.Errorf("%d releases, want 1", releases)
	}
}

func TestNew_StoresWithAnotherPrefixDoNotExcludeEachOther(t *testing.T) {
	t.Parallel()
	grants := newStore(t, time.Minute).grants
	locktest.WantApart(t, func(prefix string) locking.Store {
		s, err := New(grants, time.Minute, Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	})
}
