// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/locking/locktest"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func operation(id uuid.UUID) bson.D { return field("_id", bson.Binary{Subtype: 4, Data: id[:]}) }

// writer inserts operations, with a write concern, until one fails, and returns the
// acknowledged ones. It calls begun after the first acknowledgement.
func writer(ctx context.Context, db *mongo.Database, w any, begun func()) (acknowledged []uuid.UUID) {
	journaled := true
	c := db.Collection("wallet_operations", options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: w, Journal: &journaled}))
	for {
		id := uuid.New()
		if _, err := c.InsertOne(ctx, operation(id)); err != nil {
			return acknowledged
		}
		acknowledged = append(acknowledged, id)
		begun()
	}
}

// lost counts the operations that are missing, and those that RolledBack names.
func lost(t *testing.T, set Set, db *mongo.Database, ids []uuid.UUID) (gone, named int) {
	t.Helper()
	back, err := RolledBack(t.Context(), set, db.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		n, err := db.Collection("wallet_operations").CountDocuments(t.Context(), operation(id))
		if err != nil {
			t.Fatal(err)
		}
		gone += 1 - int(n)
		if slices.Contains(back, id.String()) {
			named++
		}
	}
	return gone, named
}

// This is the control of the fault: it shows that the fault does lose writes.
func TestPrimaryKill_RollsBackOnlyWhatThePrimaryAloneHad(t *testing.T) {
	t.Parallel()
	url, set := private(t, "mongo3")
	if err := Lifetime(t.Context(), set, 7); err != nil {
		t.Fatal(err)
	}
	db, other := newDatabase(t, url), newDatabase(t, url)
	primary, _, err := set.primary(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	direct := connect(t, "mongodb://"+primary.Addr+"/?directConnection=true&retryWrites=false").Database(db.Name())
	one, majority, begun := make(chan []uuid.UUID, 1), make(chan []uuid.UUID, 1), make(chan struct{})
	go func() { one <- writer(t.Context(), direct, 1, func() {}) }()
	go func() { majority <- writer(t.Context(), direct, "majority", sync.OnceFunc(func() { close(begun) })) }()
	<-begun
	events, err := PrimaryKill{Set: set, Times: 1}.Inject(t.Context(), time.Minute)
	struck(t, set, events, err, 1)

	acknowledged := <-one
	gone, named := lost(t, set, db, acknowledged)
	t.Logf("write concern 1: %d of %d lost", gone, len(acknowledged))
	if gone == 0 || gone != named || fault.Seen(events)["rolled_back"] < int64(gone) {
		t.Errorf("write concern 1: %d lost, %d found; %v", gone, named, fault.Seen(events))
	}
	durable := <-majority
	if gone, named := lost(t, set, db, durable); len(durable) == 0 || gone != 0 || named != 0 {
		t.Errorf("majority: %d of %d lost, %d found", gone, len(durable), named)
	}
	if back, err := RolledBack(t.Context(), set, other.Name()); err != nil || len(back) != 0 {
		t.Errorf("of another database: %q, %v", back, err)
	}
	last := acknowledged[len(acknowledged)-1] // repeating an operation stores it again
	if _, err := db.Collection("wallet_operations").InsertOne(t.Context(), operation(last)); err != nil {
		t.Fatal(err)
	}
	if gone, named := lost(t, set, db, acknowledged[len(acknowledged)-1:]); gone != 0 || named != 0 {
		t.Error("an operation that exists is reported as lost")
	}
	for _, m := range set {
		if seconds, err := lifetimeOf(t.Context(), m); err != nil || seconds != 7 {
			t.Errorf("%s: lifetime %d, %v", m.Addr, seconds, err)
		}
	}
	if apart, err := Agree(t.Context(), set, db.Name()); err != nil || len(apart) != 0 {
		t.Errorf("%q, %v", apart, err)
	}
}

// The default strategy acknowledges no operation that only the primary has.
func TestPrimaryKill_LosesNoRealOperation(t *testing.T) {
	t.Parallel()
	url, set := private(t, "mongo3")
	c := newPair(t, url, "lockid", 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int64, 1)
	go func() { done <- c.churn(ctx, 3) }()
	locktest.Eventually(t, "operations are under way", func() bool { return c.operations() > 0 }) // so that the primary alone has some of them
	events, err := PrimaryKill{Set: set, Times: 1}.Inject(t.Context(), time.Minute)
	cancel()
	n := <-done
	struck(t, set, events, err, 1)
	t.Logf("%d operations, %v", n, c.events)
	back, err := RolledBack(t.Context(), set, c.db.Name())
	if c.wrong() != 0 || c.operations() != n || err != nil || len(back) != 0 || fault.Seen(events)["rolled_back"] == 0 {
		t.Errorf("wrong by %d, %d of %d operations stored, %q lost, %v", c.wrong(), c.operations(), n, back, err)
	}
	if apart, err := Agree(t.Context(), set, c.db.Name()); err != nil || len(apart) != 0 {
		t.Errorf("%q, %v", apart, err)
	}
	for _, w := range c.proxies {
		if _, breaches := w.Breaches("lockid"); len(breaches) != 0 {
			t.Errorf("%q", breaches)
		}
	}
}

// While all clients wait for an acknowledgement, none writes anything that only the primary has:
// the secondaries have fetched their writes. The kill waits until a client continues.
func TestPrimaryKill_WaitsForAWriteThatOnlyThePrimaryHas(t *testing.T) {
	t.Parallel()
	url, set := private(t, "mongo3")
	c := newPair(t, url, "lockid", 1)
	primary, _, err := set.primary(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	others := set.others(primary)
	applying := func(mode string) {
		for _, m := range others {
			if _, err := command(context.Background(), m.Addr, "admin", bson.D{{Key: "configureFailPoint", Value: "rsSyncApplyStop"}, {Key: "mode", Value: mode}}); err != nil {
				t.Error(err)
			}
		}
	}
	fetching := func(m fault.Member) bool {
		answer, err := command(t.Context(), m.Addr, "admin", bson.D{{Key: "getParameter", Value: 1}, {Key: "failpoint." + noFetching, Value: 1}})
		entered, _ := answer.Lookup("failpoint."+noFetching, "timesEntered").AsInt64OK()
		return err != nil || entered == 0
	}
	before, err := lastWrite(t.Context(), primary)
	if err != nil {
		t.Fatal(err)
	}
	applying("alwaysOn")
	t.Cleanup(func() { applying("off") })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int64, 1)
	go func() { done <- c.churn(ctx, 1) }()
	locktest.Eventually(t, "the client has written", func() bool {
		now, err := lastWrite(t.Context(), primary)
		return err == nil && !now.Equal(before)
	})
	var events []fault.Event
	injected := make(chan struct{})
	go func() {
		defer close(injected)
		events, err = PrimaryKill{Set: set, Times: 1}.Inject(t.Context(), time.Minute)
	}()
	locktest.Eventually(t, "the secondaries fetch nothing", func() bool { return !slices.ContainsFunc(others, fetching) })
	applying("off")
	<-injected
	cancel()
	<-done
	struck(t, set, events, err, 1)
	if fault.Seen(events)["rolled_back"] == 0 {
		t.Error("nothing was rolled back")
	}
}
