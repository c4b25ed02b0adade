package locking

import (
	"context"
	"slices"
	"sync"
)

// Queue lets the goroutines of one process wait for keys in order of arrival, in one
// queue for each key. In front of a store it saves requests that would find the key
// busy: one waiter per process is enough there. The zero value is usable.
//
// A ticket enters the queues of all its keys in one step, and has its turn when it is
// first in each of them. So all queues have one common order, the oldest ticket always
// has its turn, and a deadlock is impossible. An empty queue uses no memory.
type Queue[K comparable] struct {
	Max   int // how many tickets may wait for one key; 0: any number
	Share int // how many tickets of one owner may wait for one key; 0: any number

	mu     sync.Mutex
	queues map[K][]*Ticket[K]
}

// Ticket is a position in the queues of its keys.
type Ticket[K comparable] struct {
	Waited bool // the turn did not come at once

	queue  *Queue[K]
	owner  any
	keys   []K
	behind int           // the number of queues in which another ticket is first
	turn   chan struct{} // closed when behind is 0
}

// Join takes a ticket for keys, each named once. False: a queue is full, and no
// ticket was taken. A ticket without an owner (nil) is exempt from Max and Share.
func (q *Queue[K]) Join(owner any, keys ...K) (*Ticket[K], bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if owner != nil && slices.ContainsFunc(keys, func(k K) bool { return q.full(owner, q.queues[k]) }) {
		return nil, false
	}
	return q.join(owner, keys), true
}

// TryJoin takes a ticket only if it has its turn at once.
func (q *Queue[K]) TryJoin(keys ...K) (*Ticket[K], bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.ContainsFunc(keys, func(k K) bool { return len(q.queues[k]) > 0 }) {
		return nil, false
	}
	return q.join(nil, keys), true
}

// full reports whether the tickets behind the first have reached Max or owner's Share.
func (q *Queue[K]) full(owner any, tickets []*Ticket[K]) bool {
	if len(tickets) == 0 {
		return false
	}
	own := 0
	for _, t := range tickets[1:] {
		if t.owner == owner {
			own++
		}
	}
	return q.Max > 0 && len(tickets) > q.Max || q.Share > 0 && own >= q.Share
}

func (q *Queue[K]) join(owner any, keys []K) *Ticket[K] {
	if q.queues == nil {
		q.queues = map[K][]*Ticket[K]{}
	}
	t := &Ticket[K]{queue: q, owner: owner, keys: keys, turn: make(chan struct{})}
	for _, k := range keys {
		if len(q.queues[k]) > 0 {
			t.behind++
		}
		q.queues[k] = append(q.queues[k], t)
	}
	if t.Waited = t.behind > 0; !t.Waited {
		close(t.turn)
	}
	return t
}

// Len returns how many tickets are in the queue of key, including the first.
func (q *Queue[K]) Len(key K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queues[key])
}

// At returns the keys of the ticket behind n others in the queue of key; nil: there is none.
func (q *Queue[K]) At(key K, n int) []K {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queues[key]) <= n {
		return nil
	}
	return q.queues[key][n].keys
}

// Waiting returns how many tickets with an owner wait for their turn.
func (q *Queue[K]) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, tickets := range q.queues {
		for _, t := range tickets {
			if t.owner != nil && t.behind > 0 && t.keys[0] == key { // each counts once
				n++
			}
		}
	}
	return n
}

// Wait waits for the ticket's turn. False: ctx ended first, and the ticket has left
// its queues.
func (t *Ticket[K]) Wait(ctx context.Context) bool {
	select {
	case <-t.turn:
		return true
	case <-ctx.Done():
		t.Leave(t.keys...)
		return false
	}
}

// Leave leaves the queues of keys, from any position. Leaving twice has no effect.
func (t *Ticket[K]) Leave(keys ...K) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	for _, k := range keys {
		t.queue.leave(t, k)
	}
}

func (q *Queue[K]) leave(t *Ticket[K], key K) {
	i := slices.Index(q.queues[key], t)
	if i < 0 {
		return
	}
	rest := slices.Delete(q.queues[key], i, i+1)
	q.queues[key] = rest
	switch {
	case len(rest) == 0:
		delete(q.queues, key)
	case i == 0:
		if rest[0].behind--; rest[0].behind == 0 {
			close(rest[0].turn)
		}
	}
}
