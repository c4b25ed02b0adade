package linear

import "slices"

// compose finds an order of the whole from those of the parts, without a search. Each part
// tells which of its writes comes before which. A write is taken as late as possible: when it,
// or something that must come behind it, would be late otherwise. A read is taken as soon as it
// fits. For a history that is linearizable this is an order (linearizability is local), if the
// writes of the parts are in the order in which they took effect: an older state that stays
// longer spoils nothing. The order is incomplete if not, which says nothing.
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
	chains [][]int // of each part, the writes that are not taken yet, in their order
	of     [][]int // the parts that have a step
}

// advance takes the reads that fit, and one write: the step that would be late first, or what
// must come before it.
func (c *composition) advance() bool {
	c.read(c.state)
	ready := c.next()
	if len(ready) == 0 {
		return true // it was the last one
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

// before is the write that comes next so that a step can come: itself, or the first one of a
// chain that it waits for. There is none if the chains contradict each other.
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
