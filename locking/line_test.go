// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func enter(q *Line[string], keys ...string) *Place[string] {
	t, _ := q.place(nil, keys...)
	return t
}

func hasItsTurn(t *Place[string]) bool {
	select {
	case <-t.turn:
		return true
	default:
		return false
	}
}

func TestLine_PlaceThatIsFirstInAllItsLinesHasItsTurn(t *testing.T) {
	q := &Line[string]{}
	a, b, c := enter(q, "x"), enter(q, "x", "y"), enter(q, "y")
	if !hasItsTurn(a) || hasItsTurn(b) || hasItsTurn(c) {
		t.Errorf("turns: %t %t %t, want only the first: c is behind b, although y is free", hasItsTurn(a), hasItsTurn(b), hasItsTurn(c))
	}
	if a.Waited || !b.Waited || !c.Waited {
		t.Errorf("waited: %t %t %t, want all except the first", a.Waited, b.Waited, c.Waited)
	}
	if _, ok := q.TryEnter("y", "z"); ok || q.Len("z") != 0 {
		t.Error("TryEnter overtook the line of y")
	}
	a.Leave()
	a.Leave()
	if !hasItsTurn(b) || hasItsTurn(c) {
		t.Error("a has left: want the turn of b alone")
	}
	b.Leave()
	if !hasItsTurn(c) || q.Len("x") != 0 {
		t.Error("b has left: want the turn of c, and none for x")
	}
	c.Leave()
	if _, ok := q.TryEnter("y", "x"); !ok || len(q.lines) != 2 {
		t.Errorf("all places have left: ok %t, lines %v", ok, q.lines)
	}
}

func TestLine_WaitingCountsEachPlaceOnce(t *testing.T) {
	q := &Line[string]{}
	first, _ := q.place("me", "x", "y")
	_, _ = q.place("me", "y", "x")
	q.place(nil, "x") // without an owner
	if n := q.Waiting(); n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
	first.Leave()
	if n := q.Waiting(); n != 0 {
		t.Errorf("%d wait, want none: the second has its turn", n)
	}
}

func TestLine_PlaceThatLeavesFromTheMiddleIsSkipped(t *testing.T) {
	q := &Line[string]{}
	a, b, c := enter(q, "x"), enter(q, "x", "y"), enter(q, "x", "y")
	b.Leave()
	if hasItsTurn(c) {
		t.Error("c is behind a")
	}
	a.Leave()
	if !hasItsTurn(c) {
		t.Error("no place is before c")
	}
}

// Whatever the keys, and whenever places leave: no key has two turns at once, turns come
// in order of arrival for each key, and at least one place has its turn.
func TestLine_KeepsTheOrderOfEachKeyAndNeverDeadlocks(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, names := &Line[string]{}, []string{"a", "b", "c", "d"}
		var all []*Place[string]
		for range 300 {
			if len(all) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(all))
				all[i].Leave()
				all = slices.Delete(all, i, i+1)
			} else {
				random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				all = append(all, enter(q, slices.Clone(names[:1+random.IntN(3)])...))
			}
			seen, in := map[string]bool{}, 0
			for _, p := range all { // in order of arrival
				free := !slices.ContainsFunc(p.keys, func(k string) bool { return seen[k] })
				if hasItsTurn(p) != free {
					t.Fatalf("seed %d: %q: turn is %t, want %t", seed, p.keys, hasItsTurn(p), free)
				}
				if free {
					in++
				}
				for _, k := range p.keys {
					seen[k] = true
				}
			}
			if len(all) > 0 && in == 0 {
				t.Fatalf("seed %d: no place has its turn", seed)
			}
		}
		for _, p := range all {
			p.Leave()
		}
		if len(q.lines) != 0 {
			t.Fatalf("seed %d: lines left behind: %v", seed, q.lines)
		}
	}
}

func TestLine_RefusedPlaceIsInNoLine(t *testing.T) {
	q := &Line[string]{Max: 8, Share: 2}
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
		if _, err := q.place(c.owner, "x"); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrFull) {
			t.Errorf("number %d, of %v: %v, want admitted: %t", n, c.owner, err, c.ok)
		}
	}
	if _, err := q.place("y", "y", "x"); !errors.Is(err, ErrBusy) || q.Len("y") != 0 || q.Len("x") != 10 {
		t.Errorf("%v; %d in y, %d in x", err, q.Len("y"), q.Len("x"))
	}
}

// A ctx that ends leaves no place behind, and the next waiter gets its turn.
func TestLine_PlaceLeavesWhenItsCtxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Line[string]{}
		first := enter(q, "x")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if enter(q, "x", "y").wait(ctx) == nil {
				t.Error("a turn, although the first place has not left")
			}
		})
		synctest.Wait()
		last := enter(q, "x")
		all.Go(func() {
			if last.wait(t.Context()) != nil {
				t.Error("no turn")
			}
		})
		cancel()
		synctest.Wait()
		first.Leave()
		all.Wait()
		last.Leave()
		if len(q.lines) != 0 {
			t.Errorf("lines left behind: %v", q.lines)
		}
	})
}

// Only in a gap can another process take the key. TryEnter does not wait for its end.
func TestLine_LeavesAGapAfterEachTurn(t *testing.T) {
	const turn, gap, takes = 50 * time.Millisecond, 15 * time.Millisecond, 10 * time.Millisecond
	for name, c := range map[string]struct {
		others bool
		turn   time.Duration
	}{"alone": {false, alone * turn}, "shared": {true, turn}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Line[string]{Turn: turn, Gap: gap}
				gaps, turns, last := 0, 0, time.Now()
				for begin := last; time.Since(begin) < 4*c.turn; {
					p, err := l.Enter(t.Context(), nil, "x")
					if err != nil {
						t.Fatal(err)
					}
					if turns++; turns == 1 && c.others {
						l.Seen("x")
					}
					switch waited := time.Since(last); {
					case waited == gap:
						gaps++
					case waited != 0:
						t.Errorf("turn %d after %v, want 0 or %v", turns, waited, gap)
					}
					time.Sleep(takes)
					last = time.Now()
					p.Leave()
				}
				if gaps != 3 {
					t.Errorf("%d gaps in 4 turns of %v, want 3", gaps, c.turn)
				}
				for range 2 {
					p, free := l.TryEnter("x")
					if !free {
						t.Error("TryEnter waits for the end of a gap")
					}
					time.Sleep(alone * turn)
					p.Leave()
				}
			})
		})
	}
}

// A process that comes again soon, each time to an empty line, is in its turn, and leaves the gaps.
func TestLine_ATurnOutlastsShortPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, gaps := &Line[string]{Turn: 50 * time.Millisecond, Gap: 15 * time.Millisecond}, 0
		for begin, n := time.Now(), 0; time.Since(begin) < 10*time.Second; n++ {
			asked := time.Now()
			p, err := l.Enter(t.Context(), nil, "x")
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(asked) > 0 {
				gaps++
			}
			if n == 0 {
				l.Seen("x")
			}
			time.Sleep(3900 * time.Microsecond)
			p.Leave()
			time.Sleep(time.Millisecond)
		}
		if gaps < 9 {
			t.Errorf("%d gaps in ten seconds, want one for each turn of a second", gaps)
		}
	})
}

// A request waits for the gap of one key and the requests in front at another, in any order, and its line is forgotten when
// no request has used it for a gap.
func TestLine_ForgetsAKeyThatIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Line[string]{Turn: 10 * time.Millisecond, Gap: 15 * time.Millisecond}
		x, y := enter(l, "x"), enter(l, "y")
		l.Seen("x")
		time.Sleep(l.Turn)
		both := enter(l, "x", "y")
		x.Leave() // the gap begins
		time.Sleep(l.Gap / 2)
		y.Leave()
		if synctest.Wait(); hasItsTurn(both) {
			t.Error("a turn within the gap")
		}
		time.Sleep(l.Gap)
		if synctest.Wait(); !hasItsTurn(both) {
			t.Error("no turn after the gap")
		}
		both.Leave()
		time.Sleep(time.Second)
		if synctest.Wait(); len(l.lines) != 0 {
			t.Errorf("lines left behind: %v", l.lines)
		}
	})
}
