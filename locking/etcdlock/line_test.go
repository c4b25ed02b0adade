package etcdlock

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func hasTurn(p *place) bool {
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

func TestLines_FirstInAllIsIn(t *testing.T) {
	l := lines{}
	a, b, c := l.join([]string{"x"}), l.join([]string{"x", "y"}), l.join([]string{"y"})
	if !hasTurn(a) || hasTurn(b) || hasTurn(c) {
		t.Errorf("in: %t %t %t, want the first alone: c is behind b, although y is free", hasTurn(a), hasTurn(b), hasTurn(c))
	}
	if _, ok := l.tryJoin([]string{"y", "z"}); ok {
		t.Error("pushed in")
	}
	l.leave(a)
	l.leave(a)
	if !hasTurn(b) || hasTurn(c) {
		t.Error("b is next")
	}
	l.leave(b)
	l.leave(c)
	if _, ok := l.tryJoin([]string{"y", "x"}); !ok || len(l) != 2 {
		t.Errorf("all have left, and yet: %v", l)
	}
}

// A waiter that leaves from the middle is nobody's predecessor any more.
func TestLines_LeavingFromTheMiddle(t *testing.T) {
	l := lines{}
	a, b, c := l.join([]string{"x"}), l.join([]string{"x", "y"}), l.join([]string{"x", "y"})
	l.leave(b)
	if hasTurn(c) {
		t.Error("c is behind a")
	}
	l.leave(a)
	if !hasTurn(c) {
		t.Error("nobody is before c")
	}
}

// Whatever they want and whenever they leave: never two in for one key, in order
// of arrival for each key, and someone can always go on.
func TestLines_OrderHoldsForEachKeyAndSomeoneIsAlwaysIn(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, names := lines{}, []string{"a", "b", "c", "d"}
		var all []*place
		for range 300 {
			if len(all) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(all))
				l.leave(all[i])
				all = slices.Delete(all, i, i+1)
			} else {
				random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				all = append(all, l.join(slices.Clone(names[:1+random.IntN(3)])))
			}
			seen, in := map[string]bool{}, 0
			for _, p := range all { // in order of arrival
				free := !slices.ContainsFunc(p.keys, func(k string) bool { return seen[k] })
				if hasTurn(p) != free {
					t.Fatalf("seed %d: %q: in is %t, want %t", seed, p.keys, hasTurn(p), free)
				}
				if free {
					in++
				}
				for _, k := range p.keys {
					seen[k] = true
				}
			}
			if len(all) > 0 && in == 0 {
				t.Fatalf("seed %d: nobody is in", seed)
			}
		}
		for _, p := range all {
			l.leave(p)
		}
		if len(l) != 0 {
			t.Fatalf("seed %d: left: %v", seed, l)
		}
	}
}
