package etcdlock

import "slices"

// lines are the queues inside this process, one for each key: who is first in
// all of his goes to etcd, and stays first until he has given the keys back.
// The rule is the same as in etcd: whoever arrives enters all his queues at
// once, so there is one order over all of them and no deadlock.
//
// The Store's mutex guards it.
type lines map[string][]*place

// place is where someone stands.
type place struct {
	keys   []string
	behind int           // in how many queues someone stands before him
	queued bool          // there was someone when he came
	turn   chan struct{} // closed when in none
}

// join enters the queues of all keys, at their ends.
func (l lines) join(keys []string) *place {
	p := &place{keys: keys, turn: make(chan struct{})}
	for _, k := range keys {
		if len(l[k]) > 0 {
			p.behind++
		}
		l[k] = append(l[k], p)
	}
	if p.queued = p.behind > 0; !p.queued {
		close(p.turn)
	}
	return p
}

// tryJoin enters the queues only if all are empty.
func (l lines) tryJoin(keys []string) (*place, bool) {
	if slices.ContainsFunc(keys, func(k string) bool { return len(l[k]) > 0 }) {
		return nil, false
	}
	return l.join(keys), true
}

// leave goes out of all queues, and lets those in who are first now. Who has
// left may leave again.
func (l lines) leave(p *place) {
	for _, k := range p.keys {
		i := slices.Index(l[k], p)
		if i < 0 {
			continue
		}
		rest := slices.Delete(l[k], i, i+1)
		if len(rest) == 0 {
			delete(l, k)
			continue
		}
		l[k] = rest
		if i > 0 {
			continue
		}
		if rest[0].behind--; rest[0].behind == 0 {
			close(rest[0].turn)
		}
	}
}
