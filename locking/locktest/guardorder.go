// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"shop/locking"
)

// interleaving runs transactions, one holder each, in a random order of their steps
// (guard, then commit or rollback) and checks each answer against a model.
//
// The model: one transaction has the row lock, from its answer to its end, accepted or
// refused; the other guards wait. The next one to get the row is accepted exactly if no
// newer holder has committed.
type interleaving struct {
	t         testing.TB
	guards    Guards
	random    *rand.Rand
	resource  string
	committed locking.Fence // the newest
	history   []string

	fresh    []*holder
	waiting  int
	answered chan *holder
	owner    *holder
}

type holder struct {
	fence locking.Fence
	tx    Guarded
	err   error
}

func guardInterleavings(t testing.TB, g Guards) {
	const runs = 100
	refused := 0
	for seed := range uint64(runs) {
		r := &interleaving{t: t, guards: g, random: rand.New(rand.NewPCG(seed, 1)), resource: fmt.Sprint("r", seed), answered: make(chan *holder, 5)}
		refused += r.run(2 + r.random.IntN(4))
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, r.history)
		}
	}
	if refused < runs/3 {
		t.Errorf("%d guards were refused in %d runs: too few to show anything", refused, runs)
	}
}

// run runs the transactions of n holders, and returns how many were refused.
func (r *interleaving) run(n int) (refused int) {
	r.guards.prepare(r.resource)
	for range n {
		r.fresh = append(r.fresh, &holder{
			fence: locking.Fence(1 + r.random.IntN(n)), // some are equal
			tx:    r.guards.Begin(),
		})
	}
	for len(r.fresh) > 0 || r.owner != nil {
		if begins := len(r.fresh) > 0 && (r.owner == nil || r.random.IntN(2) == 0); begins {
			r.guard()
		} else {
			refused += r.end()
		}
		if r.t.Failed() {
			return refused
		}
	}
	return refused
}

// guard sends the guard of one holder that has not begun.
func (r *interleaving) guard() {
	i := r.random.IntN(len(r.fresh))
	h := r.fresh[i]
	r.fresh = append(r.fresh[:i], r.fresh[i+1:]...)
	r.note("guards", h)
	go func() {
		h.err = h.tx.Guard(r.resource, h.fence)
		r.answered <- h
	}()
	r.waiting++
	if r.owner != nil {
		if !h.tx.waits(r.t, func() bool { return len(r.answered) > 0 }) {
			r.t.Errorf("fence %d did not wait for the open transaction", (<-r.answered).fence)
		}
		return
	}
	r.next()
}

// end ends the transaction that has the row lock, and waits until the next one has it.
func (r *interleaving) end() (refused int) {
	h := r.owner
	commit := h.err == nil && r.random.IntN(3) > 0
	if h.err != nil {
		refused = 1
	}
	end := h.tx.Rollback
	if commit {
		r.committed = max(r.committed, h.fence)
		end = h.tx.Commit
	}
	r.note(fmt.Sprint("commit=", commit), h)
	if err := end(); err != nil {
		r.t.Error(err)
	}
	r.owner = nil
	if r.waiting > 0 {
		r.next()
	}
	if got := r.guards.Fence(r.resource); got < r.committed {
		r.t.Errorf("the row remembers %d after a commit with %d", got, r.committed)
	}
	return refused
}

// next waits until any of the waiting transactions has the row lock: a database promises no order.
func (r *interleaving) next() {
	select {
	case r.owner = <-r.answered:
		r.waiting--
		r.judge(r.owner)
	case <-time.After(deadline):
		r.t.Fatal("no transaction gets the row")
	}
}

func (r *interleaving) judge(h *holder) {
	r.note(fmt.Sprint("answered ", h.err), h)
	if stale := errors.Is(h.err, locking.ErrStale); stale != (h.fence < r.committed) || (h.err != nil && !stale) {
		r.t.Errorf("fence %d after a commit with %d: %v", h.fence, r.committed, h.err)
	}
}

func (r *interleaving) note(what string, h *holder) {
	r.history = append(r.history, fmt.Sprintf("%s %d", what, h.fence))
}
