package locking

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func join(q *Queue[string], keys ...string) *Ticket[string] {
	t, _ := q.Join(nil, keys...)
	return t
}

func hasTurn(t *Ticket[string]) bool {
	select {
	case <-t.turn:
		return true
	default:
		return false
	}
}

func TestQueue_TicketThatIsFirstInAllItsQueuesHasItsTurn(t *testing.T) {
	q := &Queue[string]{}
	a, b, c := join(q, "x"), join(q, "x", "y"), join(q, "y")
	if !hasTurn(a) || hasTurn(b) || hasTurn(c) {
		t.Errorf("turns: %t %t %t, want only the first: c is behind b, although y is free", hasTurn(a), hasTurn(b), hasTurn(c))
	}
	if a.Waited || !b.Waited || !c.Waited {
		t.Errorf("waited: %t %t %t, want all except the first", a.Waited, b.Waited, c.Waited)
	}
	if _, ok := q.TryJoin("y", "z"); ok || q.Len("z") != 0 {
		t.Error("TryJoin overtook the queue of y")
	}
	a.Leave("x")
	a.Leave("x")
	if !hasTurn(b) || hasTurn(c) {
		t.Error("a has left: want the turn of b alone")
	}
	b.Leave("y")
	if !hasTurn(c) || q.Len("x") != 1 {
		t.Error("b has left y, not x: want the turn of c")
	}
	b.Leave("x")
	c.Leave("y")
	if _, ok := q.TryJoin("y", "x"); !ok || len(q.queues) != 2 {
		t.Errorf("all tickets have left: ok %t, queues %v", ok, q.queues)
	}
}

func TestQueue_WaitingCountsEachTicketOnce(t *testing.T) {
	q := &Queue[string]{}
	first, _ := q.Join("me", "x", "y")
	_, _ = q.Join("me", "y", "x")
	q.Join(nil, "x") // without an owner
	if n := q.Waiting(); n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
	first.Leave("x", "y")
	if n := q.Waiting(); n != 0 {
		t.Errorf("%d wait, want none: the second has its turn", n)
	}
}

func TestQueue_TicketThatLeavesFromTheMiddleIsSkipped(t *testing.T) {
	q := &Queue[string]{}
	a, b, c := join(q, "x"), join(q, "x", "y"), join(q, "x", "y")
	b.Leave("x", "y")
	if hasTurn(c) {
		t.Error("c is behind a")
	}
	a.Leave("x")
	if !hasTurn(c) {
		t.Error("no ticket is before c")
	}
}

// Whatever the keys, and whenever tickets leave: no key has two turns at once, turns come
// in order of arrival for each key, and at least one ticket has its turn.
func TestQueue_KeepsTheOrderOfEachKeyAndNeverDeadlocks(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, names := &Queue[string]{}, []string{"a", "b", "c", "d"}
		var all []*Ticket[string]
		for range 300 {
			if len(all) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(all))
				all[i].Leave(all[i].keys...)
				all = slices.Delete(all, i, i+1)
			} else {
				random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				all = append(all, join(q, slices.Clone(names[:1+random.IntN(3)])...))
			}
			seen, in := map[string]bool{}, 0
			for _, p := range all { // in order of arrival
				free := !slices.ContainsFunc(p.keys, func(k string) bool { return seen[k] })
				if hasTurn(p) != free {
					t.Fatalf("seed %d: %q: turn is %t, want %t", seed, p.keys, hasTurn(p), free)
				}
				if free {
					in++
				}
				for _, k := range p.keys {
					seen[k] = true
				}
			}
			if len(all) > 0 && in == 0 {
				t.Fatalf("seed %d: no ticket has its turn", seed)
			}
		}
		for _, p := range all {
			p.Leave(p.keys...)
		}
		if len(q.queues) != 0 {
			t.Fatalf("seed %d: queues left behind: %v", seed, q.queues)
		}
	}
}

func TestQueue_RefusedTicketIsInNoQueue(t *testing.T) {
	q := &Queue[string]{Max: 8, Share: 2}
	for n, c := range []struct {
		owner any
		ok    bool
	}{
		{"greedy", true}, // has the turn, and does not wait
		{"greedy", true},
		{"greedy", true},
		{"greedy", false},
		{"other", true},
		{nil, true}, // exempt from the bounds
		{1, true},
		{2, true},
		{3, true},
		{4, true},
		{5, false},
		{nil, true},
	} {
		if _, ok := q.Join(c.owner, "x"); ok != c.ok {
			t.Errorf("number %d, of %v: admitted %t, want %t", n, c.owner, ok, c.ok)
		}
	}
	if _, ok := q.Join("y", "y", "x"); ok || q.Len("y") != 0 || q.Len("x") != 10 {
		t.Errorf("admitted %t; %d in y, %d in x", ok, q.Len("y"), q.Len("x"))
	}
}

// A ctx that ends leaves no ticket behind, and the next waiter gets its turn.
func TestQueue_TicketLeavesWhenItsCtxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue[string]{}
		first := join(q, "x")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if join(q, "x", "y").Wait(ctx) {
				t.Error("a turn, although the first ticket has not left")
			}
		})
		synctest.Wait()
		last := join(q, "x")
		all.Go(func() {
			if !last.Wait(t.Context()) {
				t.Error("no turn")
			}
		})
		cancel()
		synctest.Wait()
		first.Leave("x")
		all.Wait()
		last.Leave("x")
		if len(q.queues) != 0 {
			t.Errorf("queues left behind: %v", q.queues)
		}
	})
}
