// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"shop/locking"
)

func exclusionOneStore(s *suite) {
	s.exclude(s.open(s.long()))
}

func exclusionSeveralStores(s *suite) {
	s.exclude(s.open(s.long()), s.open(s.long()), s.open(s.long()))
}

// exclude lets goroutines contend for one key, over all of the stores. Each holder also
// tries to acquire the key from another store, so that a store without exclusion fails
// every time, and not only when two holders happen to overlap.
func (s *suite) exclude(stores ...locking.Store) {
	const workers, rounds = 8, 15
	var inside, grants atomic.Int32
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			mine, other := stores[w%len(stores)], stores[(w+1)%len(stores)]
			for range rounds {
				if !s.enter(mine, other, &inside) {
					return
				}
				grants.Add(1)
			}
		})
	}
	all.Wait()
	if got := grants.Load(); !s.Failed() && got != workers*rounds {
		s.Errorf("%d grants, want %d", got, workers*rounds)
	}
}

// enter holds the key once, and checks that there is no second holder.
func (s *suite) enter(mine, other locking.Store, inside *atomic.Int32) bool {
	ctx := s.within(deadline)
	lease, err := acquire(ctx, mine, key)
	if err != nil {
		s.Errorf("acquire: %v", err)
		return false
	}
	if n := inside.Add(1); n != 1 {
		s.Errorf("%d holders at once", n)
	}
	if second, err := other.TryAcquire(ctx, key); !errors.Is(err, locking.ErrBusy) && answered(err) {
		s.Errorf("acquire a held key: got %+v and %v, want ErrBusy", second, err)
	}
	runtime.Gosched()
	inside.Add(-1)
	if err := release(ctx, mine, lease); err != nil {
		s.Errorf("release: %v", err)
	}
	return !s.Failed()
}
