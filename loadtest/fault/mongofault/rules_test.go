// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestBreaches_ACorrectTransactionHasNoBreach(t *testing.T) {
	c := newTalk(t)
	for i := range 3 {
		err := c.transact(c.must(c.newLock), c.must(c.find), c.must(func(ctx context.Context) error { return c.insert(ctx, i) }))
		if err != nil {
			t.Fatal(err)
		}
	}
	c.wantBreaches("lockid", 3)
}

func TestBreaches_ReadersAndTheDriversCommandsAreNoBreach(t *testing.T) {
	c := newTalk(t)
	cursor, err := c.db.Collection("wallets").Aggregate(t.Context(), mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	var all []bson.D
	if err := cursor.All(t.Context(), &all); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := c.db.Client().Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	c.wantBreaches("lockid", 0)
}

func TestBreaches_R1ATransactionThatDoesNotBeginWithTheLock(t *testing.T) {
	for name, first := range map[string]func(c talk, ctx context.Context) error{
		"find":   talk.find,
		"insert": func(c talk, ctx context.Context) error { return c.insert(ctx, "x") },
		"no ObjectId": func(c talk, ctx context.Context) error {
			return c.lock(ctx, 7)
		},
		"more than the lock": func(c talk, ctx context.Context) error {
			change := field("$set", bson.D{{Key: "lockId", Value: bson.NewObjectID()}, {Key: "balance", Value: 5}})
			return c.db.Collection("wallets").FindOneAndUpdate(ctx, field("_id", 1), change).Err()
		},
		"a lock elsewhere": func(c talk, ctx context.Context) error {
			err := c.db.Collection("wallet_entries").FindOneAndUpdate(ctx, field("_id", 1), field("$set", field("lockId", bson.NewObjectID()))).Err()
			if err == mongo.ErrNoDocuments {
				err = nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTalk(t)
			if err := c.transact(c.must(func(ctx context.Context) error { return first(c, ctx) }), c.must(c.newLock)); err != nil {
				t.Fatal(err)
			}
			c.wantBreaches("lockid", 1, "R1:, 1×")
			c.wantBreaches("inc", 1)
		})
	}
}

func TestBreaches_R2ALockIDThatAnotherTransactionUsed(t *testing.T) {
	c := newTalk(t)
	id := bson.NewObjectID()
	same := c.must(func(ctx context.Context) error { return c.lock(ctx, id) })
	if err := c.transact(same, same); err != nil { // one transaction may use it for two wallets
		t.Fatal(err)
	}
	c.wantBreaches("lockid", 1)
	for range 2 {
		if err := c.transact(same); err != nil {
			t.Fatal(err)
		}
	}
	c.wantBreaches("lockid", 3, "R2:, 2×")
	c.wantBreaches("inc", 3)
}

func TestBreaches_R3AStatementOutsideOfATransaction(t *testing.T) {
	c := newTalk(t)
	wallets := c.db.Collection("wallets")
	c.must(c.find)(t.Context())
	c.wantBreaches("inc", 0) // inc may read before
	c.must(func(ctx context.Context) error { return c.insert(ctx, "a") })(t.Context())
	c.must(c.newLock)(t.Context())
	c.must(func(ctx context.Context) error {
		_, err := wallets.UpdateByID(ctx, 1, field("$set", field("n", 2)))
		return err
	})(t.Context())
	c.must(func(ctx context.Context) error { _, err := wallets.DeleteOne(ctx, field("_id", 2)); return err })(t.Context())
	c.wantBreaches("inc", 0, "R3:, 1×", "R3:, 1×", "R3:, 1×", "R3:, 1×")
	c.wantBreaches("lockid", 0, "R3:, 1×", "R3:, 1×", "R3:, 1×", "R3:, 1×", "R3:, 1×")
}

// The server has aborted such a transaction, so the commit fails, but the client that sends
// the commit has ignored an error.
func TestBreaches_R4ACommitAfterAnError(t *testing.T) {
	c := newTalk(t)
	c.must(func(ctx context.Context) error { return c.insert(context.WithoutCancel(t.Context()), "a") })(t.Context())
	fails := func(ctx context.Context) {
		if !mongo.IsDuplicateKeyError(c.insert(ctx, "a")) {
			t.Error("no duplicate key")
		}
	}
	if err := c.transact(c.must(c.newLock), fails); err == nil {
		t.Error("committed")
	}
	c.wantBreaches("lockid", 1, "R3:, 1×", "R4:, 1×")
	c.wantBreaches("inc", 1, "R3:, 1×", "R4:, 1×")
}

func TestBreaches_AnErrorThatEndsTheTransactionIsNoBreach(t *testing.T) {
	c := newTalk(t)
	c.settled()
	other, err := c.db.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer other.EndSession(context.Background())
	if err := other.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	c.must(c.newLock)(mongo.NewSessionContext(t.Context(), other))
	session, err := c.db.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	attempts := 0
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		if attempts++; attempts == 2 { // the first attempt found the wallet locked
			c.must(other.CommitTransaction)(t.Context())
		}
		return nil, c.newLock(ctx)
	})
	if err != nil || attempts < 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
	if n := c.w.Conflicts(); n != int64(attempts-1) {
		t.Errorf("%d locks were refused, want one in each attempt but the last: %d", n, attempts-1)
	}
	c.wantBreaches("lockid", int64(1+attempts))
}
