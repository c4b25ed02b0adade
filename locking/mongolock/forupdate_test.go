// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/locktest"
)

func TestForUpdate_ReturnsTheDocumentWithANewLockIDEachTime(t *testing.T) {
	t.Parallel()
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a")
	seen := map[bson.ObjectID]bool{}
	for range 3 {
		x := begin(t, c)
		for range 2 { // twice in one transaction as well
			var d counter
			if err := ForUpdate(x.ctx, c, "a", &d); err != nil {
				t.Fatal(err)
			}
			if d.ID != "a" || d.N != 100 || d.LockID == nil || seen[*d.LockID] {
				t.Errorf("got %+v after %v", d, seen)
			}
			seen[*d.LockID] = true
		}
		x.commit()
	}
}

func TestForUpdate_RefusesWhatWouldHoldNoLock(t *testing.T) {
	t.Parallel()
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a")
	over := begin(t, c)
	if err := ForUpdate(over.ctx, c, "a", &counter{}); err != nil {
		t.Fatal(err)
	}
	over.commit()
	session, err := c.Database().Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	was := read(t, t.Context(), c, "a").LockID
	for name, ctx := range map[string]context.Context{
		"no session":               t.Context(),
		"no transaction":           mongo.NewSessionContext(t.Context(), session),
		"a transaction that ended": over.ctx,
	} {
		if err := ForUpdate(ctx, c, "a", &counter{}); !errors.Is(err, ErrNoTransaction) {
			t.Errorf("%s: got %v, want ErrNoTransaction", name, err)
		}
		if _, err := ForUpdateAll[counter](ctx, c, []string{"a"}); !errors.Is(err, ErrNoTransaction) {
			t.Errorf("%s, all: got %v, want ErrNoTransaction", name, err)
		}
	}
	if now := read(t, t.Context(), c, "a").LockID; *now != *was {
		t.Error("the document was written")
	}
}

// An id is a value, even if it is from outside and looks like a condition.
func TestForUpdate_RefusesAMissingDocument(t *testing.T) {
	t.Parallel()
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a")
	x := begin(t, c)
	for _, id := range []any{"b", "A", bson.D{{Key: "$gt", Value: ""}}, bson.M{"$exists": true}, nil} {
		if err := ForUpdate(x.ctx, c, id, &counter{}); !errors.Is(err, mongo.ErrNoDocuments) {
			t.Errorf("%v: got %v, want mongo.ErrNoDocuments", id, err)
		}
	}
	if _, err := ForUpdateAll[counter](x.ctx, c, []string{"a", "b"}); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("one of two: got %v, want mongo.ErrNoDocuments", err)
	}
}

func TestForUpdate_RefusesTheSecondAtOnceUntilTheFirstHasEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*tx){"commit": (*tx).commit, "abort": (*tx).abort} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCollection(t, mongoURL(t))
			insert(t, c, "a")
			first := begin(t, c)
			if err := ForUpdate(first.ctx, c, "a", &counter{}); err != nil {
				t.Fatal(err)
			}
			wantConflict(t, ForUpdate(begin(t, c).ctx, c, "a", &counter{}))
			end(first)
			if err := ForUpdate(begin(t, c).ctx, c, "a", &counter{}); err != nil {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// T45: a read before the lock may be old; ForUpdate then fails.
func TestForUpdate_AfterAReadIsRefusedIfTheDocumentChangedSince(t *testing.T) {
	t.Parallel()
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a")
	late := begin(t, c)
	read(t, late.ctx, c, "a")
	if err := setN(t.Context(), c, "a", 7); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, ForUpdate(late.ctx, c, "a", &counter{}))
}

// T44: until SERVER-77616 the manual's example had a constant lockId. With it, both
// transactions pass their lock at once.
func TestForUpdate_WithAConstantLockIDWouldLockNothing(t *testing.T) {
	t.Parallel()
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a")
	constant := func(ctx context.Context) error {
		return c.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: "a"}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "lockId", Value: "locked"}}}},
			options.FindOneAndUpdate().SetReturnDocument(options.After)).Err()
	}
	if err := constant(t.Context()); err != nil { // it was locked once before
		t.Fatal(err)
	}
	a, b := begin(t, c), begin(t, c)
	if err := errors.Join(constant(a.ctx), constant(b.ctx)); err != nil {
		t.Errorf("%v: the constant lockId does lock, so the test shows nothing", err)
	}
}

// Many transactions read and then write one number, which is correct only under a lock.
// The work after the lock runs once for each commit.
func TestForUpdate_WorkAfterItRunsOnceForEachCommit(t *testing.T) {
	t.Parallel()
	const workers, rounds = 6, 15
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a")
	var attempts, work atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range rounds {
				err := transact(t, c, func(ctx context.Context) error {
					attempts.Add(1)
					var d counter
					if err := ForUpdate(ctx, c, "a", &d); err != nil {
						return err
					}
					work.Add(1)
					return setN(ctx, c, "a", d.N+1)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := read(t, t.Context(), c, "a").N; n != 100+workers*rounds {
		t.Errorf("%d, want %d", n, 100+workers*rounds)
	}
	if n := work.Load(); n != workers*rounds {
		t.Errorf("the work ran %d times for %d commits", n, workers*rounds)
	}
	if attempts.Load() == workers*rounds {
		t.Error("no transaction was refused, so the test shows nothing")
	}
}

// A holder that hangs keeps the lock until the server aborts its transaction at the
// lifetime limit. Its commit then fails.
func TestForUpdate_HolderThatHangsLosesItsLockWithItsTransaction(t *testing.T) {
	locktest.Slow(t, "the time limit of a transaction")
	t.Parallel()
	server := startServer(t)
	command(t, server, bson.D{{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 1}})
	c := newCollection(t, server.URL)
	insert(t, c, "a")
	hangs := begin(t, c)
	if err := ForUpdate(hangs.ctx, c, "a", &counter{}); err != nil {
		t.Fatal(err)
	}
	if err := ForUpdate(begin(t, c).ctx, c, "a", &counter{}); err != nil {
		wantConflict(t, err)
	} else if c.FindOne(hangs.ctx, bson.D{}).Err() == nil { // the server has not aborted it yet
		t.Error("two transactions hold the lock")
	}
	locktest.Eventually(t, "another transaction has the lock", func() bool {
		x := begin(t, c)
		err := ForUpdate(x.ctx, c, "a", &counter{})
		x.abort()
		return err == nil
	})
	var labelled mongo.LabeledError
	err := hangs.session.CommitTransaction(hangs.ctx)
	if !errors.As(err, &labelled) || !labelled.HasErrorLabel("TransientTransactionError") {
		t.Errorf("commit: %v, want TransientTransactionError", err)
	}
}
