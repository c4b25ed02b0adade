// SPDX-License-Identifier: MIT

package wrong

import (
	"testing"
	"time"

	"shop/locking/locktest"
)

// resource is what the lock protects. It refuses a fence that is older than one that it has seen.
type resource struct{ newest int64 }

func (r *resource) write(fence int64) bool {
	if fence < r.newest {
		return false
	}
	r.newest = fence
	return true
}

// C9: Redis loses its data, the resource does not.
func TestIncr_BeginsAgainBelowWhatTheResourceHasSeen(t *testing.T) {
	t.Parallel()
	counter, server, r := newKey(t), connect(t, ""), resource{}
	for range 3 {
		if !r.write(must[int64](t)(Incr(t.Context(), server, counter))) {
			t.Fatal("a holder was refused before the loss")
		}
	}
	must[int64](t)(server.Del(t.Context(), counter).Result()) // as after a restart without its data
	for range 2 {
		if fence := must[int64](t)(Incr(t.Context(), server, counter)); r.write(fence) {
			t.Errorf("the resource accepted %d after %d", fence, r.newest)
		}
	}
}

// C9: A has its fence, and is slow. B gets a fence and the lock, writes and releases; then A gets the lock.
func TestIncrThenSet_GrantsAnOlderFenceLater(t *testing.T) {
	t.Parallel()
	key, counter, b, r := newKey(t), newKey(t), connect(t, ""), resource{}
	a, _, reached, resume := halted(t, "set")
	type grant struct {
		fence int64
		taken bool
	}
	granted := locktest.Beside(func() (g grant, err error) {
		g.fence, g.taken, err = IncrThenSet(t.Context(), a, key, counter, "A", time.Minute)
		return g, err
	})
	<-reached
	fence, taken, err := IncrThenSet(t.Context(), b, key, counter, "B", time.Minute)
	if err != nil || !taken || !r.write(fence) {
		t.Fatalf("B: %d, %v, %v", fence, taken, err)
	}
	must[int64](t)(b.Del(t.Context(), key).Result())
	resume()
	g, err := (<-granted).Pair()
	if err != nil || !g.taken {
		t.Fatalf("A: %+v, %v, want the lock", g, err)
	}
	if r.write(g.fence) {
		t.Errorf("A, which has the lock, was accepted with %d after %d", g.fence, fence)
	}
}
