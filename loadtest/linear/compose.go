package linear

import "slices"

// compose puts the orders of the parts together: an order in which each part keeps its own,
// and no step comes behind one that was called after its return. For a history that is
// linearizable there is one (that is what makes linearizability local), if the orders of the
// parts are those in which it took effect. The order is incomplete if they contradict each
// other, which says nothing.
func (p Partition) compose(orders [][]int) (order []int) {
	places := map[*Operation]int{}
	for i, s := range p.Steps {
		places[s.Of] = i
	}
	before := make([]int, len(p.Steps)) // how many steps have to come first
	behind := make([][]int, len(p.Steps))
	for n, part := range p.Parts {
		last := -1
		for _, k := range orders[n] {
			i, has := places[part.Steps[k].Of]
			if !has {
				return nil
			}
			if last >= 0 {
				behind[last] = append(behind[last], i)
				before[i]++
			}
			last = i
		}
	}
	s := newSearch(p)
	for {
		ready := slices.DeleteFunc(s.next(), func(i int) bool { return before[i] > 0 })
		if len(ready) == 0 {
			return s.order
		}
		for _, i := range ready { // what is ready together may come in any order
			s.take(i)
			for _, k := range behind[i] {
				before[k]--
			}
		}
	}
}
