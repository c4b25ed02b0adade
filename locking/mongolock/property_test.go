// SPDX-License-Identifier: MIT

package mongolock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
)

// interleaving runs transactions, one holder each, in a random order of their steps
// (guard, then commit or abort) and checks each answer against a model.
//
// The model: a guard with a fence older than the greatest committed one is stale,
// whether or not a transaction is open. Otherwise, if another transaction is open, it
// is a conflict. Otherwise it passes, and its transaction is the open one.
type interleaving struct {
	t         *testing.T
	guards    *mongo.Collection
	random    *rand.Rand
	resource  string
	committed locking.Fence // the newest
	owner     *tx           // the open transaction; nil: none
	fence     locking.Fence // the owner's
	history   []string
	refused   int
}

func TestGuard_AnyInterleavingCommitsInOrderOfFences(t *testing.T) {
	t.Parallel()
	const runs, steps = 30, 12
	c := newGuards(t, "warm-up")
	refused := 0
	for seed := range uint64(runs) {
		r := &interleaving{t: t, guards: c, random: rand.New(rand.NewPCG(seed, 1)), resource: fmt.Sprint("r", seed)}
		if err := MakeGuards(t.Context(), c, r.resource); err != nil {
			t.Fatal(err)
		}
		for range steps {
			if r.owner == nil || r.random.IntN(2) == 0 {
				r.guard(locking.Fence(1 + r.random.IntN(4))) // some are equal
			} else {
				r.end()
			}
		}
		if refused += r.refused; t.Failed() {
			t.Fatalf("seed %d: %v", seed, r.history)
		}
	}
	if refused < runs {
		t.Errorf("%d guards were refused in %d runs: too few to show anything", refused, runs)
	}
}

func (r *interleaving) guard(fence locking.Fence) {
	x := begin(r.t, r.guards)
	err := Guard(x.ctx, r.guards, r.resource, fence)
	r.history = append(r.history, fmt.Sprintf("%d guards: %v", fence, err))
	switch {
	case fence < r.committed:
		r.refused++
		if !errors.Is(err, locking.ErrStale) {
			r.t.Errorf("fence %d after a commit with %d: %v, want ErrStale", fence, r.committed, err)
		}
		x.abort()
	case r.owner != nil:
		wantConflict(r.t, err)
	case err != nil:
		r.t.Errorf("fence %d after a commit with %d: %v", fence, r.committed, err)
	default:
		r.owner, r.fence = x, fence
	}
}

// end commits or aborts the open transaction.
func (r *interleaving) end() {
	commit := r.random.IntN(3) > 0
	r.history = append(r.history, fmt.Sprintf("%d ends, commit=%t", r.fence, commit))
	if commit {
		r.owner.commit()
		r.committed = r.fence
	} else {
		r.owner.abort()
	}
	r.owner = nil
	if got := remembered(r.t, r.guards, r.resource); got != r.committed {
		r.t.Errorf("the guard remembers %d after a commit with %d", got, r.committed)
	}
}
