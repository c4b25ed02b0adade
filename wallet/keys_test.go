// SPDX-License-Identifier: MIT

package wallet_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency"
	"shop/locking/invariant"
	"shop/locking/locktest"
	"shop/wallet"
)

func TestKey_SameAtTheSameMomentHasOneEffectAndOneBody(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		if strategy == "naive" {
			continue
		}
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy, Failpoint: locktest.MeetAt(2, wallet.AfterBegin)})
			replica, _ := c.another(c.cfg)
			p := c.pair(100, 0)
			req := newRequest(p.alice)
			var wg sync.WaitGroup
			bodies := make([][]byte, 6)
			for n := range bodies {
				svc := []*wallet.Service{c.Service, replica}[n%2]
				wg.Go(func() {
					reply, err := until(t.Context(), func() (wallet.Reply, error) { return svc.Credit(t.Context(), req, p.a, 30) })
					if err != nil {
						t.Error(err)
					}
					bodies[n] = reply.Body
				})
			}
			wg.Wait()
			for _, body := range bodies {
				if !bytes.Equal(body, bodies[0]) {
					t.Errorf("bodies differ: %s and %s", body, bodies[0])
				}
			}
			c.mustHave(p.a, 133)
			c.mustHold()
			if calls, operations := c.bonus.calls(); operations != 1 || strategy != "inc" && slices.Contains(safe(), strategy) && calls != 1 {
				t.Errorf("%d calls for %d operations", calls, operations)
			}
		})
	}
}

// Two requests with one key that lock different wallets collide at the key only: the second
// insert gets WriteConflict or DuplicateKey.
func TestKey_SameForTwoWalletsAtOnceIsDoneForOne(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy, Failpoint: locktest.MeetAt(2, wallet.AfterGuard)})
			p := c.pair(100, 0)
			other := c.wallet(p.alice, 100)
			first := newRequest(p.alice)
			second := first
			second.Fingerprint[0]++
			one := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(t.Context(), first, p.a, 30) })
			two := locktest.Beside(func() (wallet.Reply, error) { return c.Debit(t.Context(), second, other, 30) })
			x, y := (<-one).Err, (<-two).Err
			if (x == nil) == (y == nil) || !errors.Is(errors.Join(x, y), idempotency.ErrKeyReused) {
				t.Errorf("%v and %v, want one nil and one idempotency.ErrKeyReused", x, y)
			}
			if n := c.operations(); n != 1 {
				t.Errorf("%d operations, want 1", n)
			}
			c.mustHold()
		})
	}
}

// No request holds the key during the call of the bonus service. So the bonus service has to refuse.
func TestKey_SameForTwoCreditsGivesNeitherTheOthersBonus(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			other := c.wallet(p.alice, 100)
			first := newRequest(p.alice)
			second := first
			second.Fingerprint[0]++
			one := locktest.Beside(func() (wallet.Reply, error) { return c.Credit(t.Context(), first, p.a, 30) })
			two := locktest.Beside(func() (wallet.Reply, error) { return c.Credit(t.Context(), second, other, 1000) })
			x, y := (<-one).Err, (<-two).Err
			if (x == nil) == (y == nil) || !errors.Is(errors.Join(x, y), idempotency.ErrKeyReused) {
				t.Errorf("%v and %v, want one nil and one idempotency.ErrKeyReused", x, y)
			}
			if x == nil {
				c.mustHave(p.a, 133)
			} else {
				c.mustHave(other, 1200)
			}
			c.mustHold()
		})
	}
}

func TestKey_OfAnotherRequestIsRefusedWithoutEffect(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			req := newRequest(p.alice)
			c.done(c.Credit(t.Context(), req, p.a, 30))
			req.Fingerprint[0]++
			if _, err := c.Credit(t.Context(), req, p.a, 30); !errors.Is(err, idempotency.ErrKeyReused) {
				t.Errorf("%v, want idempotency.ErrKeyReused", err)
			}
			c.mustHave(p.a, 133)
			c.mustHold()
		})
	}
}

func TestKey_BelongsToItsClient(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 100)
	c.done(c.Pay(t.Context(), requestBy(p.alice, "$same"), p.pay(30)))
	reply, err := c.Pay(t.Context(), requestBy(p.bob, "$same"), p.payBack(10))
	if err != nil || reply.Replayed {
		t.Errorf("%+v, %v", reply, err)
	}
	c.mustHave(p.a, 80)
	c.mustHold()
}

func TestKey_RefusalIsStoredAndReplayedWhenThereIsMoney(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(10, 100)
			req := newRequest(p.alice)
			first, err := c.Pay(t.Context(), req, p.pay(11))
			if err != nil || !isRefused(first) {
				t.Fatalf("%s, %v", first.Body, err)
			}
			c.done(c.Pay(t.Context(), newRequest(p.bob), p.payBack(50)))
			again, err := c.Pay(t.Context(), req, p.pay(11))
			if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
				t.Errorf("%+v, %v: want the first answer", again, err)
			}
			c.mustHave(p.a, 60)
			c.mustHold()
		})
	}
}

func TestKey_ReplaysTheHeaderOfItsReply(t *testing.T) {
	t.Parallel()
	for _, strategy := range all() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy, Encode: func(op wallet.Operation, refusal error) (wallet.Reply, error) {
				reply, err := idempotency.JSON(op, refusal)
				reply.Header = map[string]string{"Location": "/operations/" + op.ID.String()}
				return reply, err
			}})
			p := c.pair(100, 0)
			req := newRequest(p.alice)
			first, err := c.Credit(t.Context(), req, p.a, 30)
			again, err2 := c.Credit(t.Context(), req, p.a, 30)
			if err := errors.Join(err, err2); err != nil || !again.Replayed || again.Header["Location"] == "" || !maps.Equal(again.Header, first.Header) {
				t.Errorf("%+v, then %+v: %v", first, again, err)
			}
		})
	}
}

func TestReplay_NeedsNoBonusService(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{Strategy: strategy})
			p := c.pair(100, 0)
			req := newRequest(p.alice)
			c.done(c.Credit(t.Context(), req, p.a, 30))
			c.bonus.fails = 1
			reply, err := c.Credit(t.Context(), req, p.a, 30)
			if err != nil || !reply.Replayed {
				t.Errorf("%+v, %v", reply, err)
			}
		})
	}
}

// The count of a client with many keys reads an index, and no operation.
func TestCountKeys_CountsTheRefusalsOfOneClientInTheIndex(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 100)
	for range 3 {
		if reply, err := c.Debit(t.Context(), newRequest(p.alice), p.a, 101); err != nil || !isRefused(reply) {
			t.Errorf("%s, %v", reply.Body, err)
		}
		c.done(c.Credit(t.Context(), newRequest(p.bob), p.b, 1))
	}
	for limit, want := range map[int64]int64{1: 1, 3: 3, 100: 3} {
		if n, err := c.CountKeys(t.Context(), p.alice, limit); n != want || err != nil {
			t.Errorf("up to %d: %d, %v; want %d", limit, n, err, want)
		}
	}
	if n, err := c.CountKeys(t.Context(), p.bob, 9); n != 0 || err != nil {
		t.Errorf("a client without refusals: %d, %v", n, err)
	}
	req := newRequest(p.bob)
	c.done(c.Credit(t.Context(), req, p.b, 1))
	req.Fingerprint = [32]byte{9}
	for key, want := range map[string]bool{req.Key: true, "another": false} {
		if has, err := c.HasKey(t.Context(), wallet.Request{Client: p.bob, Key: key}); has != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", key, has, err, want)
		}
	}

	var plan bson.M
	count := bson.D{ // as CountDocuments sends it
		{Key: "aggregate", Value: "wallet_operations"},
		{Key: "cursor", Value: bson.D{}},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$match", Value: bson.D{{Key: "client", Value: p.alice}, {Key: "refused", Value: bson.D{{Key: "$gt", Value: ""}}}}}},
			bson.D{{Key: "$limit", Value: 100}},
			bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
		}},
	}
	if err := c.db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: count}, {Key: "verbosity", Value: "executionStats"}}).Decode(&plan); err != nil {
		t.Fatal(err)
	}
	text, err := bson.MarshalExtJSON(plan, false, false)
	if err != nil || !strings.Contains(string(text), `"totalDocsExamined":0`) || !strings.Contains(string(text), `"client_1_refused_1"`) {
		t.Errorf("%s, %v: want a count in the index", text, err)
	}
}

func TestPurge_ForgetsOldRefusalsAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	old, fresh, effect := newRequest(p.alice), newRequest(p.alice), newRequest(p.alice)
	for _, req := range []wallet.Request{old, fresh} {
		if reply, err := c.Debit(t.Context(), req, p.a, 101); err != nil || !isRefused(reply) {
			t.Errorf("%s, %v", reply.Body, err)
		}
	}
	c.done(c.Credit(t.Context(), effect, p.a, 30))
	age := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", (25 * time.Hour).Milliseconds()}}}}}}}}
	aged := bson.D{{Key: "key", Value: bson.D{{Key: "$in", Value: bson.A{old.Key, effect.Key}}}}}
	if _, err := c.db.Collection("wallet_operations").UpdateMany(t.Context(), aged, age); err != nil {
		t.Fatal(err)
	}
	if n, err := wallet.Purge(t.Context(), c.db, 24*time.Hour); n != 1 || err != nil {
		t.Errorf("purged %d, %v, want 1", n, err)
	}
	c.mustHold()
	if reply, err := c.Debit(t.Context(), fresh, p.a, 101); err != nil || !reply.Replayed {
		t.Errorf("fresh: %+v, %v", reply, err)
	}
	if reply, err := c.Credit(t.Context(), effect, p.a, 30); err != nil || !reply.Replayed {
		t.Errorf("effect: %+v, %v", reply, err)
	}
	c.done(c.Debit(t.Context(), old, p.a, 101)) // the money is there now, and the key is new
	c.mustHave(p.a, 32)
	if _, err := wallet.Purge(t.Context(), c.db, time.Hour); !errors.Is(err, wallet.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid for less than KeysKept", err)
	}
}

// refuse stores n refusals that are older than a day.
func (c *fixture) refuse(n int) (ids []uuid.UUID) {
	c.t.Helper()
	p := c.pair(100, 0)
	if reply, err := c.Debit(c.t.Context(), newRequest(p.alice), p.a, 101); err != nil || !isRefused(reply) {
		c.t.Fatalf("%s, %v", reply.Body, err)
	}
	operations := c.db.Collection("wallet_operations")
	var like bson.M
	if err := operations.FindOne(c.patient(), bson.D{}).Decode(&like); err != nil {
		c.t.Fatal(err)
	}
	like["createdAt"] = time.Now().Add(-25 * time.Hour)
	copies := make([]bson.M, n)
	for i := range copies {
		copies[i] = maps.Clone(like)
		id := uuid.New()
		copies[i]["_id"], copies[i]["key"] = id, id.String()
		ids = append(ids, id)
	}
	if _, err := operations.InsertMany(c.patient(), copies); err != nil {
		c.t.Fatal(err)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// Many refusals are deleted in pages: one statement for all of them would exceed ClientTimeout.
func TestPurge_DeletesInPages(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	const refusals = 2500
	c.refuse(refusals)
	profile := func(level int) {
		if err := c.db.RunCommand(c.patient(), bson.D{{Key: "profile", Value: level}, {Key: "slowms", Value: 100}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	profile(2)
	_, w := c.watched(wallet.Config{})
	if n, err := wallet.Purge(t.Context(), w.db, wallet.KeysKept); n != refusals || err != nil {
		t.Errorf("purged %d, %v, want %d", n, err, refusals)
	}
	profile(0)
	if n := w.count("delete"); n < 3 {
		t.Errorf("%d refusals were deleted by %d commands, want several", refusals, n)
	}
	// Each page costs the same, however many follow.
	cursor, err := c.db.Collection("system.profile").Find(c.patient(), bson.D{{Key: "op", Value: "remove"}})
	if err != nil {
		t.Fatal(err)
	}
	var removals []struct {
		Keys int `bson:"keysExamined"`
	}
	if err := cursor.All(c.patient(), &removals); err != nil || len(removals) < 3 {
		t.Errorf("%d removals in the profile, %v", len(removals), err)
	}
	for _, r := range removals {
		if r.Keys > refusals/4 {
			t.Errorf("a page read %d keys of an index", r.Keys)
		}
	}
	c.mustHold()
}

// Not parallel: a server has one failCommand.
//
// A server that is busy with other work takes longer for a page than a request may take.
func TestPurge_MayTakeLongerThanARequest(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	c := open(t, wallet.Config{})
	const refusals = 10
	c.refuse(refusals)
	name := "purge-" + uuid.NewString()
	o, err := wallet.ClientOptions(c.url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(o.SetAppName(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	slow := bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: (wallet.ClientTimeout + wallet.ClientTimeout/4).Milliseconds()}}
	c.failCommand(name, times(1), "delete", slow...)
	if n, err := wallet.Purge(t.Context(), client.Database(c.db.Name()), wallet.KeysKept); n != refusals || err != nil {
		t.Errorf("purged %d, %v, want %d", n, err, refusals)
	}
}

// A check that looks at each operation is run in pieces: a snapshot of millions of them would be too old at the end.
func TestPipelines_FindTheSameInPieces(t *testing.T) {
	t.Parallel()
	c := open(t, wallet.Config{})
	const refusals = 2500
	ids := c.refuse(refusals)
	bad := []uuid.UUID{ids[0], ids[999], ids[1000], ids[1001], ids[refusals-1]} // beside the ends of a piece
	for _, id := range bad {
		entry := bson.D{
			{Key: "operation", Value: id}, {Key: "wallet", Value: uuid.New()}, {Key: "delta", Value: int64(1)}, {Key: "createdAt", Value: time.Now()},
		}
		if _, err := c.db.Collection("wallet_entries").InsertOne(c.patient(), entry); err != nil {
			t.Fatal(err)
		}
	}
	i := slices.IndexFunc(wallet.Invariants.Checks, func(check invariant.Check) bool { return check.Name == "M2 operations" })
	_, w := c.watched(wallet.Config{})
	found, err := wallet.Pipelines(w.db)(c.patient(), wallet.Invariants.Checks[i])
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, id := range bad {
		want = append(want, id.String())
	}
	if slices.Sort(found); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if n := w.count("aggregate"); n < 3 {
		t.Errorf("%d operations were checked by %d aggregations, want at most 1000 by each", refusals, n)
	}
}
