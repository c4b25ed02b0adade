// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
)

// newGuards makes a collection with guards for resources.
func newGuards(t testing.TB, resources ...string) *mongo.Collection {
	t.Helper()
	c := newCollection(t, mongoURL(t)).Database().Collection("guards")
	if err := MakeGuards(t.Context(), c, resources...); err != nil {
		t.Fatal(err)
	}
	return c
}

// write guards resource in a transaction and commits it.
func write(t testing.TB, c *mongo.Collection, resource string, fence locking.Fence) error {
	t.Helper()
	return transact(t, c, func(ctx context.Context) error { return Guard(ctx, c, resource, fence) })
}

// remembered returns the fence that the guard of resource has stored.
func remembered(t testing.TB, c *mongo.Collection, resource string) locking.Fence {
	t.Helper()
	var g grant
	if err := c.FindOne(t.Context(), bson.D{{Key: "_id", Value: resource}}).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return locking.Fence(g.Fence)
}

func TestGuard_RefusesTheOldHolderAndAcceptsThePresentAndTheNext(t *testing.T) {
	t.Parallel()
	c := newGuards(t, "a", "b")
	const old, present, next = 5, 7, 8
	for _, step := range []struct {
		fence locking.Fence
		want  error
	}{
		{old, nil},
		{present, nil},
		{old, locking.ErrStale}, // continues after a pause
		{present, nil},          // writes again
		{next, nil},
		{present, locking.ErrStale},
		{old, locking.ErrStale},
		{next, nil},
	} {
		if err := write(t, c, "a", step.fence); !errors.Is(err, step.want) {
			t.Errorf("fence %d: %v, want %v", step.fence, err, step.want)
		}
	}
	if got := remembered(t, c, "a"); got != next {
		t.Errorf("the guard remembers %d, want %d", got, next)
	}
	if err := write(t, c, "b", old); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

// The holder of fence 5 has passed before. It passes again in one transaction, and the
// holder of 6 in another. The second of the two gets a conflict, retries, and then passes
// or is stale, by its fence.
func TestGuard_OfTwoConcurrentOnesTheSecondConflicts(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		first, second locking.Fence
		end           func(*tx)
		want          error
	}{
		"equal commits, then newer":      {5, 6, (*tx).commit, nil},
		"newer commits, then equal":      {6, 5, (*tx).commit, locking.ErrStale},
		"equal commits, then equal":      {5, 5, (*tx).commit, nil},
		"newer aborts, and equal passes": {6, 5, (*tx).abort, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newGuards(t, "a")
			if err := write(t, c, "a", 5); err != nil {
				t.Fatal(err)
			}
			first, second := begin(t, c), begin(t, c)
			if err := Guard(first.ctx, c, "a", try.first); err != nil {
				t.Fatal(err)
			}
			wantConflict(t, Guard(second.ctx, c, "a", try.second))
			try.end(first)
			if err := write(t, c, "a", try.second); !errors.Is(err, try.want) {
				t.Errorf("again: %v, want %v", err, try.want)
			}
		})
	}
}

// The transaction's snapshot is older than another holder's commit.
func TestGuard_WithAnOldSnapshotConflictsFirst(t *testing.T) {
	t.Parallel()
	for name, fences := range map[string][2]locking.Fence{"equal, newer has committed": {6, 5}, "newer, equal has committed": {5, 6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newGuards(t, "a")
			if err := write(t, c, "a", 5); err != nil {
				t.Fatal(err)
			}
			late := begin(t, c)
			if err := c.FindOne(late.ctx, bson.D{}).Err(); err != nil { // takes the snapshot
				t.Fatal(err)
			}
			if err := write(t, c, "a", fences[0]); err != nil {
				t.Fatal(err)
			}
			wantConflict(t, Guard(late.ctx, c, "a", fences[1]))
			err := write(t, c, "a", fences[1])
			if stale := errors.Is(err, locking.ErrStale); stale != (fences[1] < fences[0]) {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// The reason for the counter: an update to the present value takes no lock, so the old
// holder commits after the new one.
func TestGuard_WithoutTheCounterAnOldHolderCommitsAfterTheNewOne(t *testing.T) {
	t.Parallel()
	c := newGuards(t, "a")
	if err := write(t, c, "a", 5); err != nil {
		t.Fatal(err)
	}
	uncounted := func(x *tx, fence int64) {
		t.Helper()
		result, err := c.UpdateOne(x.ctx,
			bson.D{{Key: "_id", Value: "a"}, {Key: "fence", Value: bson.D{{Key: "$lte", Value: fence}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "fence", Value: fence}}}})
		if err != nil || result.MatchedCount != 1 {
			t.Fatalf("fence %d: %+v, %v", fence, result, err)
		}
	}
	old, next := begin(t, c), begin(t, c)
	uncounted(old, 5)
	uncounted(next, 6)
	next.commit()
	old.commit() // with all other writes of the transaction
}
