// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// spied returns c through a client that records its commands called name as they are sent.
func spied(t testing.TB, c *mongo.Collection, name string, o *options.ClientOptions) (*mongo.Collection, func() []*event.CommandStartedEvent) {
	t.Helper()
	var mu sync.Mutex
	var sent []*event.CommandStartedEvent
	client, err := mongo.Connect(o.ApplyURI(mongoURL(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == name {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, e)
			}
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database(c.Database().Name()).Collection(c.Name()), func() []*event.CommandStartedEvent {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sent)
	}
}

func TestForUpdateAll_LocksEachOnceAndInOneOrder(t *testing.T) {
	t.Parallel()
	c, sent := spied(t, newCollection(t, mongoURL(t)), "findAndModify", options.Client())
	insert(t, c, "a", "b", "c")
	for _, ids := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "b", "a", "c"}} {
		before := len(sent())
		x := begin(t, c)
		all, err := ForUpdateAll[counter](x.ctx, c, ids)
		if err != nil {
			t.Fatal(err)
		}
		x.commit()
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%q: got %q", ids, got)
		}
		var order []string
		for _, e := range sent()[before:] {
			order = append(order, e.Command.Lookup("query", "_id", "$eq").StringValue())
		}
		if !slices.Equal(order, []string{"a", "b", "c"}) {
			t.Errorf("%q: locked as %q", ids, order)
		}
		for id, d := range all {
			if d.ID != id || d.LockID == nil {
				t.Errorf("%q is %+v", id, d)
			}
		}
	}
}

// An id need not have an order in Go: a UUID is an array of bytes.
func TestForUpdateAll_TakesIDsOfAnyType(t *testing.T) {
	t.Parallel()
	c := newCollection(t, mongoURL(t))
	ids := [][16]byte{{2}, {1, 255}, {1}}
	insert(t, c, ids...)
	all, err := ForUpdateAll[counter](begin(t, c).ctx, c, ids)
	if err != nil || len(all) != len(ids) {
		t.Errorf("got %v, %v", all, err)
	}
	sorted, err := inOrder(ids)
	if want := [][16]byte{{1}, {1, 255}, {2}}; err != nil || !slices.Equal(sorted, want) {
		t.Errorf("in the order %v, want %v; %v", sorted, want, err)
	}
	if _, err := inOrder([]chan int{nil}); err == nil {
		t.Error("an id without a BSON encoding was accepted")
	}
}

// Payments between the same accounts in opposite directions all commit, and no money is lost.
func TestForUpdateAll_OppositeOrdersAllCommit(t *testing.T) {
	t.Parallel()
	const rounds = 15
	c := newCollection(t, mongoURL(t))
	insert(t, c, "a", "b", "c")
	var all sync.WaitGroup
	for _, pair := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}} {
		all.Go(func() {
			for range rounds {
				err := transact(t, c, func(ctx context.Context) error {
					both, err := ForUpdateAll[counter](ctx, c, pair)
					if err != nil {
						return err
					}
					if err := setN(ctx, c, pair[0], both[pair[0]].N-1); err != nil {
						return err
					}
					return setN(ctx, c, pair[1], both[pair[1]].N+1)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for id, want := range map[string]int64{"a": 100 + rounds, "b": 100 - rounds, "c": 100} {
		if n := read(t, t.Context(), c, id).N; n != want {
			t.Errorf("%s has %d, want %d", id, n, want)
		}
	}
}
