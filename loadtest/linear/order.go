// SPDX-License-Identifier: MIT

package linear

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Verdict is the result of the check of a partition.
type Verdict string

// The verdicts.
const (
	Legal     Verdict = "legal"
	Illegal   Verdict = "illegal"
	Undecided Verdict = "undecided" // the check ran out of time or memory
)

// order tries the orders of a partition until one is legal, none is left, or ctx ends. It returns the
// legal order.
//
// Of the steps that can come next, a read that fits is taken at once: it changes nothing, so no legal order
// is lost. The writes are tried in the order of the database. If the service is right, that order is legal (but for
// slots, whose buyers do not wait for each other), and the first one is the only one to try. If it is not, the search
// continues, and the verdict does not depend on the order of the database. A search that takes long begins again with
// another order, since a mistake near its beginning costs the most; each may take twice as long, so that the last one is
// complete.
func (p Partition) order(ctx context.Context) (Verdict, []int) {
	s := newSearch(p)
	stop := context.AfterFunc(ctx, func() { s.stop.Store(true) })
	defer stop()
	for {
		switch found := s.from(p.Start); {
		case found && p.verify(s.order):
			return Legal, s.order
		case found || s.stop.Load():
			return Undecided, nil // an order that cannot be verified would be an error of the search
		case s.left > 0:
			return Illegal, nil
		}
		s.again()
	}
}

// search is a depth-first search for an order.
type search struct {
	steps  []Step
	amount func(State) int64
	byCall []int
	place  []int // of each step in byCall
	rank   []int // of each step; writes are tried in this order
	head   int   // all steps before it in byCall are done
	done   bits
	order  []int // the steps that are done
	seen   map[uint64][]seen
	seed   maphash.Seed
	most   int // positions of this search …
	left   int // … of which these are left
	stop   atomic.Bool
}

// seen is a position from which the search has failed.
type seen struct {
	done  bits
	state State
}

// bits is a set of steps.
type bits []uint64

func (b bits) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bits) flip(i int)     { b[i/64] ^= 1 << (i % 64) }

func newSearch(p Partition) *search {
	s := &search{steps: p.Steps, amount: p.Amount, done: make(bits, (len(p.Steps)+63)/64), seen: map[uint64][]seen{}, seed: maphash.MakeSeed()}
	for i := range p.Steps {
		s.byCall = append(s.byCall, i)
	}
	slices.SortStableFunc(s.byCall, func(a, b int) int { return cmp.Compare(p.Steps[a].Call, p.Steps[b].Call) })
	s.place = make([]int, len(p.Steps))
	for at, i := range s.byCall {
		s.place[i] = at
	}
	s.try(func(a, b int) int { return p.Steps[a].before(p.Steps[b]) })
	s.most = max(firstMost, 2*len(p.Steps)) // the order of the database needs one for each write
	s.left = s.most
	return s
}

// try sets the order in which writes are tried.
func (s *search) try(compare func(a, b int) int) {
	order := slices.Clone(s.byCall)
	slices.SortStableFunc(order, compare)
	s.rank = make([]int, len(order))
	for at, i := range order {
		s.rank[i] = at
	}
}

// firstMost is how many positions the first search may try, or more in a large partition.
const firstMost = 10_000

// Within this time of each other, two returns say little about the order of their writes.
const aboutNow = 4 * time.Millisecond

// again prepares a search for twice as many positions. It tries the writes by their returns, give or take a moment.
func (s *search) again() {
	random := rand.New(rand.NewPCG(uint64(s.most), 0))
	returns := make([]int64, len(s.steps))
	for i, step := range s.steps {
		if returns[i] = step.Return; step.Return < Forever {
			returns[i] += random.Int64N(int64(aboutNow))
		}
	}
	s.try(func(a, b int) int { return cmp.Compare(returns[a], returns[b]) })
	s.most *= 2
	s.left, s.seen = s.most, map[uint64][]seen{} // a position that a search left has not failed
}

// from continues the search from a state, and reports whether it found an order. If not, it undoes all
// its steps.
func (s *search) from(state State) bool {
	before := len(s.order)
	writes := s.read(state)
	if len(s.order) == len(s.steps) {
		return true
	}
	if s.left > 0 && !s.isPast(state) && s.isNew(state) {
		if s.left--; s.stop.Load() {
			s.left = 0
		}
		for _, i := range writes {
			next, ok := s.steps[i].Next(state)
			if !ok {
				continue
			}
			s.take(i)
			if s.from(next) {
				return true
			}
			if s.undo(len(s.order) - 1); s.left == 0 {
				break
			}
		}
	}
	s.undo(before)
	return false
}

// read takes the reads that fit, and returns the writes that can come next, in the order in which to try them.
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
		if !taken { // a read that is taken may make other steps possible
			break
		}
	}
	slices.SortFunc(writes, func(a, b int) int { return cmp.Compare(s.rank[a], s.rank[b]) })
	return writes
}

// next returns the steps that can come next: those that were called before any other open step returned.
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

// isPast reports whether an open read shows an amount that the open writes called before its return cannot reach. Without
// this, the search would find out too late that an order of writes that overlap is wrong. It looks at the next reads only.
func (s *search) isPast(state State) bool {
	if s.amount == nil {
		return false
	}
	reads := 0
	for _, i := range s.byCall[s.head:] {
		if s.steps[i].Shows == nil || s.done.has(i) {
			continue
		}
		if !s.reaches(s.amount(state), s.steps[i]) {
			return true
		}
		if reads++; reads == lookAhead {
			break
		}
	}
	return false
}

// lookAhead is at how many reads isPast looks.
const lookAhead = 32

func (s *search) reaches(amount int64, read Step) bool {
	less, more := uint64(0), uint64(0) // that the writes may take and add
	for _, i := range s.byCall[s.head:] {
		if s.steps[i].Call > read.Return {
			break
		}
		switch adds := s.steps[i].Adds; {
		case adds == 0 || s.done.has(i):
		case adds < 0 && less <= math.MaxInt64:
			less += uint64(-adds)
		case adds > 0 && more <= math.MaxInt64:
			more += uint64(adds)
		}
	}
	if *read.Shows < amount {
		return uint64(amount)-uint64(*read.Shows) <= less
	}
	return uint64(*read.Shows)-uint64(amount) <= more
}

func (s *search) take(i int) {
	s.done.flip(i)
	s.order = append(s.order, i)
}

// undo undoes all but the first n steps.
func (s *search) undo(n int) {
	for _, i := range s.order[n:] {
		s.done.flip(i)
		s.head = min(s.head, s.place[i])
	}
	s.order = s.order[:n]
}

// isNew reports whether the search is at this position for the first time, and remembers it.
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

// fits reports whether a step is legal in a state.
func (s Step) fits(state State) bool {
	_, ok := s.Next(state)
	return ok
}

// before compares two writes that could come next, by the order of the database. Writes without a place in
// it come last, by their returns.
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

// verify reports whether an order is legal: it has each step once, no step comes after one that was called
// after its return, and the model gives each step its answer.
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
