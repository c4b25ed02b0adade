package linear

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
)

// Verdict is what a check says of a partition.
type Verdict string

// The verdicts.
const (
	Legal     Verdict = "legal"
	Illegal   Verdict = "illegal"
	Undecided Verdict = "undecided" // its time or the memory ran out
)

// order tries the orders of a partition until one is legal, none is left, or ctx ends. It
// returns the one that is legal.
//
// Of the steps that can come next, a read that fits comes at once: it changes nothing, so
// that no order is lost. The writes are tried in the order of the database, which is right
// for a service that is, so that the first order is the last one. Where it is not, the
// search goes on, and the verdict is as good as without.
func (p Partition) order(ctx context.Context) (Verdict, []int) {
	s := newSearch(p)
	stop := context.AfterFunc(ctx, func() { s.stop.Store(true) })
	defer stop()
	switch found := s.from(p.Start); {
	case found && p.verify(s.order):
		return Legal, s.order
	case found || s.stop.Load():
		return Undecided, nil // found and not verified would be a fault of the search
	default:
		return Illegal, nil
	}
}

// search is a search for an order, depth first.
type search struct {
	steps  []Step
	byCall []int
	head   int // all before it in byCall are done
	done   bits
	order  []int // those that are done
	seen   map[uint64][]seen
	seed   maphash.Seed
	stop   atomic.Bool
}

// seen is a state in which the search has been, and failed from there on.
type seen struct {
	done  bits
	state State
}

// bits are a set of steps.
type bits []uint64

func (b bits) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bits) flip(i int)     { b[i/64] ^= 1 << (i % 64) }

func newSearch(p Partition) *search {
	s := &search{steps: p.Steps, done: make(bits, (len(p.Steps)+63)/64), seen: map[uint64][]seen{}, seed: maphash.MakeSeed()}
	for i := range p.Steps {
		s.byCall = append(s.byCall, i)
	}
	slices.SortStableFunc(s.byCall, func(a, b int) int { return cmp.Compare(p.Steps[a].Call, p.Steps[b].Call) })
	return s
}

// from goes on from a state, and tells whether an order was found. If not, all is as before.
func (s *search) from(state State) bool {
	before := len(s.order)
	writes := s.read(state)
	if len(s.order) == len(s.steps) {
		return true
	}
	if !s.stop.Load() && s.isNew(state) {
		for _, i := range writes {
			next, ok := s.steps[i].Next(state)
			if !ok {
				continue
			}
			s.take(i)
			if s.from(next) {
				return true
			}
			s.undo(len(s.order) - 1)
		}
	}
	s.undo(before)
	return false
}

// read takes the reads that fit, and gives the writes that can come next, the first to try first.
func (s *search) read(state State) (writes []int) {
	for {
		taken := false
		writes = writes[:0]
		for _, i := range s.next() {
			switch step := s.steps[i]; {
			case !step.Reads:
				writes = append(writes, i)
			case step.fits(state):
				s.take(i)
				taken = true
			}
		}
		if !taken { // each that is taken may let others come
			break
		}
	}
	slices.SortStableFunc(writes, func(a, b int) int { return s.steps[a].before(s.steps[b]) })
	return writes
}

// next are the steps that can come next: none of the others had returned before they were called.
func (s *search) next() (steps []int) {
	for s.head < len(s.byCall) && s.done.has(s.byCall[s.head]) {
		s.head++
	}
	earliest := int64(Forever)
	for _, i := range s.byCall[s.head:] {
		if s.steps[i].Call > earliest {
			break
		}
		if !s.done.has(i) {
			steps = append(steps, i)
			earliest = min(earliest, s.steps[i].Return)
		}
	}
	return slices.DeleteFunc(steps, func(i int) bool { return s.steps[i].Call > earliest })
}

func (s *search) take(i int) {
	s.done.flip(i)
	s.order = append(s.order, i)
}

// undo takes back all behind the first so many.
func (s *search) undo(n int) {
	for _, i := range s.order[n:] {
		s.done.flip(i)
	}
	s.order, s.head = s.order[:n], 0
}

// isNew tells whether the search is at this place for the first time.
func (s *search) isNew(state State) bool {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, word := range s.done {
		maphash.WriteComparable(&h, word)
	}
	key := h.Sum64()
	for _, known := range s.seen[key] {
		if slices.Equal(known.done, s.done) && known.state.Equal(state) {
			return false
		}
	}
	s.seen[key] = append(s.seen[key], seen{slices.Clone(s.done), state})
	return true
}

// fits tells whether a step is legal in a state.
func (s Step) fits(state State) bool {
	_, ok := s.Next(state)
	return ok
}

// before compares two writes that could come next: as the database orders them, and those of
// which it knows nothing by their returns.
func (s Step) before(t Step) int {
	if s.Order != 0 && t.Order != 0 {
		return cmp.Compare(s.Order, t.Order)
	}
	return cmp.Or(cmp.Compare(isZero(s.Order), isZero(t.Order)), compareReturns(s, t))
}

func compareReturns(s, t Step) int { return cmp.Compare(s.Return, t.Return) }

func isZero(n int64) int {
	if n == 0 {
		return 1
	}
	return 0
}

// verify tells whether an order is legal: it has each step once, none of them comes behind
// one that was called after its return, and the model gives each its answer.
func (p Partition) verify(order []int) bool {
	if len(order) != len(p.Steps) {
		return false
	}
	seen := make([]bool, len(p.Steps))
	state, latest := p.Start, int64(0)
	for _, i := range order {
		s := p.Steps[i]
		latest = max(latest, s.Call)
		var ok bool
		if state, ok = s.Next(state); !ok || seen[i] || s.Return < latest {
			return false
		}
		seen[i] = true
	}
	return true
}
