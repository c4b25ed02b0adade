// SPDX-License-Identifier: MIT

package linear

import "slices"

// compose finds an order of the whole from the orders of the parts, without a search. The order of a part
// is that of its writes. A write is taken as late as possible: when it, or a step that must come after it,
// would otherwise come after its return. A read is taken as soon as it fits.
//
// For a linearizable history this gives a legal order (linearizability is local), if the writes of the
// parts are in the order in which they took effect: taking a write later than it happened does not
// make the order illegal. Otherwise the order is incomplete, which decides nothing.
func (p Partition) compose(orders [][]int) (order []int) {
	c := composition{search: newSearch(p), state: p.Start, chains: make([][]int, len(p.Parts)), of: make([][]int, len(p.Steps))}
	places := map[*Operation]int{}
	for i, s := range p.Steps {
		places[s.Of] = i
	}
	for n, part := range p.Parts {
		for _, k := range orders[n] {
			i, has := places[part.Steps[k].Of]
			if !has {
				return nil
			}
			c.of[i] = append(c.of[i], n)
			if !p.Steps[i].Reads {
				c.chains[n] = append(c.chains[n], i)
			}
		}
	}
	for len(c.order) < len(p.Steps) && c.advance() {
	}
	return c.order
}

// composition is an order that is being composed.
type composition struct {
	*search
	state  State
	chains [][]int // by part: the writes that are not taken yet, in their order
	of     [][]int // by step: the parts that contain it
}

// advance takes the reads that fit and then one write: the step with the earliest return, or a write that
// must come before that step.
func (c *composition) advance() bool {
	c.read(c.state)
	ready := c.next()
	if len(ready) == 0 {
		return true // no step is left
	}
	first := slices.MinFunc(ready, func(a, b int) int { return compareReturns(c.steps[a], c.steps[b]) })
	write, has := c.before(first, 0)
	if !has || !slices.Contains(ready, write) {
		return false
	}
	next, ok := c.steps[write].Next(c.state)
	if !ok {
		return false
	}
	c.state = next
	c.take(write)
	for _, n := range c.of[write] {
		c.chains[n] = c.chains[n][1:]
	}
	return true
}

// before returns the next write on the way to a step: the step itself, or the first write of a chain that
// must come before it. There is none if the chains contradict each other.
func (c *composition) before(i, depth int) (write int, has bool) {
	if depth > len(c.steps) {
		return 0, false
	}
	for _, n := range c.of[i] {
		if len(c.chains[n]) > 0 && c.chains[n][0] != i {
			return c.before(c.chains[n][0], depth+1)
		}
	}
	return i, !c.steps[i].Reads
}
