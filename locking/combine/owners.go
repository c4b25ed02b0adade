// SPDX-License-Identifier: MIT

package combine

import "sync"

// Owners remembers to whom some objects belong. A request for an object of another client is refused before it waits,
// and one that waits for a batch should not cost a lookup for that. Owners is for what never changes. Its zero value is
// ready to use.
type Owners[Object, Owner comparable] struct {
	mu sync.Mutex
	of map[Object]Owner
}

// ownersMax bounds the memory.
const ownersMax = 10_000

// Has reports whether it is known that the object is the owner's.
func (o *Owners[Object, Owner]) Has(object Object, owner Owner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	by, known := o.of[object]
	return known && by == owner
}

// Add remembers the owner. If it has remembered many, it forgets them.
func (o *Owners[Object, Owner]) Add(object Object, owner Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || len(o.of) >= ownersMax {
		o.of = map[Object]Owner{}
	}
	o.of[object] = owner
}
