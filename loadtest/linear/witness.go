package linear

import (
	"cmp"
	"slices"
	"sort"
)

// witness proposes an order: the writes as the database orders them, and each read at the
// first place where it fits. It is nil if that is no legal order, which says nothing: the
// database may order two writes in another way than they took effect.
//
// For the given order of the writes no read is refused a place that it could have: a read
// changes nothing, so that an early place leaves the most to those behind it.
func (p Partition) witness() []int {
	var writes, reads, open []int
	for i, s := range p.Steps {
		switch {
		case s.Reads:
			reads = append(reads, i)
		case s.Order != 0:
			writes = append(writes, i)
		case s.Return == Forever:
			open = append(open, i) // behind all others, as if it had not happened
		default:
			return nil // a write of which the database knows nothing
		}
	}
	slices.SortStableFunc(writes, func(a, b int) int { return cmp.Compare(p.Steps[a].Order, p.Steps[b].Order) })
	writes, states := p.advance(append(writes, open...))
	if writes == nil {
		return nil
	}
	order := p.insert(writes, reads, states)
	if !p.verify(order) {
		return nil
	}
	return order
}

// advance does the writes one after the other, and returns them with the states between
// them. One that is not possible yet waits for those behind it: two of one moment have
// places that mean nothing. It returns nil if one is left over.
func (p Partition) advance(writes []int) (order []int, states []State) {
	states = append(states, p.Start)
	do := func(i int) bool {
		next, ok := p.Steps[i].Next(states[len(states)-1])
		if ok {
			order, states = append(order, i), append(states, next)
		}
		return ok
	}
	var waiting []int
	for _, i := range writes {
		if !do(i) {
			waiting = append(waiting, i)
			continue
		}
		for before := -1; before != len(waiting); {
			before = len(waiting)
			waiting = slices.DeleteFunc(waiting, do)
		}
	}
	if len(waiting) > 0 {
		return nil, nil
	}
	return order, states
}

// insert puts each read before the first write where it fits.
func (p Partition) insert(writes, reads []int, states []State) []int {
	n := len(writes)
	called := make([]int64, n+1)   // the latest call among the first so many writes
	returned := make([]int64, n+1) // the earliest return among those from here on
	returned[n] = Forever
	for k, i := range writes {
		called[k+1] = max(called[k], p.Steps[i].Call)
	}
	for k := n - 1; k >= 0; k-- {
		returned[k] = min(returned[k+1], p.Steps[writes[k]].Return)
	}
	slices.SortStableFunc(reads, func(a, b int) int { return cmp.Compare(p.Steps[a].Call, p.Steps[b].Call) })
	at := make([][]int, n+1) // the reads before each write
	var ended placed
	for _, i := range reads {
		s := p.Steps[i]
		k := max(ended.before(s.Call), sort.Search(n, func(k int) bool { return returned[k] >= s.Call }))
		for !s.fits(states[k]) {
			if k++; k > n || called[k] > s.Return {
				return nil
			}
		}
		at[k] = append(at[k], i)
		ended.add(s.Return, k)
	}
	order := at[0]
	for k, i := range writes {
		order = append(append(order, i), at[k+1]...)
	}
	return order
}

// fits tells whether a step is legal in a state.
func (s Step) fits(state State) bool {
	_, ok := s.Next(state)
	return ok
}

// placed are the returns of reads with their places, by return; both rise.
type placed []struct {
	end int64
	k   int
}

// before is the last place of those that had returned before a moment.
func (p placed) before(moment int64) int {
	n := sort.Search(len(p), func(i int) bool { return p[i].end >= moment })
	if n == 0 {
		return 0
	}
	return p[n-1].k
}

func (p *placed) add(end int64, k int) {
	n := sort.Search(len(*p), func(i int) bool { return (*p)[i].end >= end })
	if n > 0 {
		k = max(k, (*p)[n-1].k)
	}
	*p = slices.Insert(*p, n, struct {
		end int64
		k   int
	}{end, k})
	for i := n + 1; i < len(*p) && (*p)[i].k < k; i++ {
		(*p)[i].k = k
	}
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
