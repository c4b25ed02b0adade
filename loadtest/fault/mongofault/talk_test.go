// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"errors"
	"strings"
	"testing"

	"shop/loadtest/internal/testbed"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// talk is a client of a proxy, with its own database.
type talk struct {
	t    *testing.T
	w    *Proxy
	db   *mongo.Database
	past *mongo.Database // the same database without the proxy; nil: the server is not shared with other tests
}

func newTalk(t *testing.T) talk {
	url := testbed.Env(t, "SHOP_MONGO_URL")
	db, w := newDatabase(t, url), newProxy(t, url)
	return talk{t, w, connect(t, w.URL()).Database(db.Name()), db}
}

// settled waits until a new transaction sees all earlier writes. A transaction's snapshot is taken
// before the oldest commit under way on the server, which may be another test's, and a write
// over a newer version is a conflict.
func (c talk) settled() {
	c.t.Helper()
	marks, mark := c.past.Collection("marks"), field("_id", bson.NewObjectID())
	if _, err := marks.InsertOne(c.t.Context(), mark); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, func(ctx context.Context) error {
		return c.past.Client().UseSession(ctx, func(ctx context.Context) error {
			session := mongo.SessionFromContext(ctx)
			if err := session.StartTransaction(); err != nil {
				return err
			}
			found := marks.FindOne(ctx, mark).Err()
			return errors.Join(found, session.AbortTransaction(ctx))
		})
	})
}

func field(name string, value any) bson.D { return bson.D{{Key: name, Value: value}} }

// lock is the correct first statement, with this lockId.
func (c talk) lock(ctx context.Context, id any) error {
	return c.db.Collection("wallets").FindOneAndUpdate(ctx, field("_id", 1), field("$set", field("lockId", id))).Err()
}

func (c talk) find(ctx context.Context) error {
	return c.db.Collection("wallets").FindOne(ctx, field("_id", 1)).Err()
}

func (c talk) insert(ctx context.Context, id any) error {
	_, err := c.db.Collection("wallet_operations").InsertOne(ctx, field("_id", id))
	return err
}

// transact runs statements in a transaction, and commits even if they failed. It waits first,
// so that other tests cause no conflict with earlier writes.
func (c talk) transact(statements ...func(context.Context)) error {
	c.t.Helper()
	c.settled()
	session, err := c.db.Client().StartSession()
	if err != nil {
		c.t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	if err := session.StartTransaction(); err != nil {
		c.t.Fatal(err)
	}
	for _, s := range statements {
		s(mongo.NewSessionContext(c.t.Context(), session))
	}
	return session.CommitTransaction(c.t.Context())
}

// must returns a statement that must succeed.
func (c talk) must(do func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		c.t.Helper()
		if err := do(ctx); err != nil {
			c.t.Error(err)
		}
	}
}

func (c talk) newLock(ctx context.Context) error { return c.lock(ctx, bson.NewObjectID()) }

// wantBreaches checks that exactly these rules were broken, this often.
func (c talk) wantBreaches(strategy string, transactions int64, want ...string) {
	c.t.Helper()
	n, breaches := c.w.Breaches(strategy)
	ok := n == transactions && len(breaches) == len(want)
	for i := range want {
		ok = ok && strings.HasPrefix(breaches[i], want[i][:3]) && strings.HasSuffix(breaches[i], want[i][3:])
	}
	if !ok {
		c.t.Errorf("%s: %d transactions, %q; want %d, %q", strategy, n, breaches, transactions, want)
	}
}
