// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
)

func TestGuard_RefusesWhatGuardsNothing(t *testing.T) {
	t.Parallel()
	c := newGuards(t, "a")
	x := begin(t, c)
	for _, fence := range []locking.Fence{0, -1} {
		if err := Guard(x.ctx, c, "a", fence); !errors.Is(err, locking.ErrUnfenced) || errors.Is(err, locking.ErrStale) {
			t.Errorf("fence %d: %v, want ErrUnfenced", fence, err)
		}
	}
	for _, resource := range []string{"", "a\x00", "\xff", string(make([]byte, 513))} {
		if err := Guard(x.ctx, c, resource, 1); !errors.Is(err, locking.ErrKey) {
			t.Errorf("resource %.8q: %v, want ErrKey", resource, err)
		}
	}
	if err := Guard(t.Context(), c, "a", 1); !errors.Is(err, ErrNoTransaction) {
		t.Errorf("outside of a transaction: %v, want ErrNoTransaction", err)
	}
	if err := Guard(x.ctx, c, "unmade", 1); !errors.Is(err, mongo.ErrNoDocuments) || errors.Is(err, locking.ErrStale) {
		t.Errorf("without a document: %v, want mongo.ErrNoDocuments", err)
	}
	if err := Guard(x.ctx, c, "a", 1); err != nil {
		t.Errorf("the refusals have ended the transaction: %v", err)
	}
	if got := remembered(t, c, "a"); got != 0 {
		t.Errorf("fence %d was written", got)
	}
}

// Names that differ in case, or in a space at the end, are different resources.
func TestGuard_NeverConfusesResources(t *testing.T) {
	t.Parallel()
	names := []string{"a", "A", "a ", "ä", "a/b", "a%", "{a}", "$a", "a.b"}
	c := newGuards(t, names...)
	for i, name := range names {
		if err := write(t, c, name, locking.Fence(100-i)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestMakeGuards_ConcurrentAndRepeatedCallsKeepExistingGuards(t *testing.T) {
	t.Parallel()
	c := newGuards(t, "a")
	if err := write(t, c, "a", 7); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := MakeGuards(t.Context(), c, "a", "b", "c"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := remembered(t, c, "a"); got != 7 {
		t.Errorf("the guard remembers %d, want 7", got)
	}
	if n, err := c.CountDocuments(t.Context(), bson.D{}); n != 3 || err != nil {
		t.Errorf("%d guards, %v", n, err)
	}
	if err := MakeGuards(begin(t, c).ctx, c, "d"); !errors.Is(err, ErrTransaction) {
		t.Errorf("inside of a transaction: %v, want ErrTransaction", err)
	}
	if err := MakeGuards(t.Context(), c, ""); !errors.Is(err, locking.ErrKey) {
		t.Errorf("an empty name: %v, want ErrKey", err)
	}
}

// The reads are outside of the transactions. A, the old holder, is late; B, the new one,
// is not. Both read 100.
func TestGuard_AtTheWriteAloneLosesAnUpdate(t *testing.T) {
	t.Parallel()
	c := newGuards(t, "a")
	insert(t, c, "n")
	add := func(was counter, fence locking.Fence, n int64) {
		t.Helper()
		err := transact(t, c, func(ctx context.Context) error {
			if err := Guard(ctx, c, "a", fence); err != nil {
				return err
			}
			return setN(ctx, c, "n", was.N+n)
		})
		if err != nil {
			t.Error(err)
		}
	}
	a, b := read(t, t.Context(), c, "n"), read(t, t.Context(), c, "n")
	add(a, 5, 10)
	add(b, 6, 1) // passes, since 6 is newer, but B has read before A wrote
	if n := read(t, t.Context(), c, "n").N; n != 101 {
		t.Errorf("%d, want 101: A's 10 must be lost, or the test shows nothing", n)
	}
}

func TestGuard_BeforeTheReadLosesNoUpdate(t *testing.T) {
	t.Parallel()
	const holders = 8
	c := newGuards(t, "a")
	insert(t, c, "n")
	var all sync.WaitGroup
	for range holders {
		all.Go(func() {
			err := transact(t, c, func(ctx context.Context) error {
				if err := Guard(ctx, c, "a", 7); err != nil {
					return err
				}
				var d counter
				if err := c.FindOne(ctx, bson.D{{Key: "_id", Value: "n"}}).Decode(&d); err != nil {
					return err
				}
				return setN(ctx, c, "n", d.N+1)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := read(t, t.Context(), c, "n").N; n != 100+holders {
		t.Errorf("%d, want %d", n, 100+holders)
	}
}
