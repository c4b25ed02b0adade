// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"slices"
	"sync"
	"time"

	"shop/locking"
)

// fifo checks that the waiters are granted the keys in the order of their arrival.
func fifo(s *suite) {
	const waiters = 5
	holder := s.open(s.long())
	held := s.try(holder, key)
	var mu sync.Mutex
	var order, arrival []int
	var all sync.WaitGroup
	for i := range waiters {
		store := s.open(s.long())
		all.Go(func() {
			ctx := s.within(deadline)
			lease, err := locking.Acquire(ctx, store, options(), key)
			if err != nil {
				s.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := release(ctx, store, lease); err != nil {
				s.Errorf("waiter %d: %v", i, err)
			}
		})
		arrival = append(arrival, i)
		s.eventually("the next waiter waits", func() bool { return s.Waiting(key) == i+1 })
	}
	s.release(holder, held)
	all.Wait()
	if !slices.Equal(order, arrival) {
		s.Errorf("granted in the order %v, arrived in the order %v", order, arrival)
	}
}

// fifoNot shows a waiter that arrives last and is granted the keys first.
func fifoNot(s *suite) {
	const rounds = 50
	a, b, late := s.open(s.long()), s.open(s.long()), s.open(s.long())
	for range rounds {
		if s.overtakes(a, b, late) {
			return
		}
	}
	s.Errorf("in %d rounds no waiter overtook another: promise FIFO", rounds)
}

// overtakes lets b wait for a's key, releases it, and reports whether late then gets it
// before b.
func (s *suite) overtakes(a, b, late locking.Store) bool {
	held := s.acquire(deadline, a, key) // the last request of an earlier round may have taken it, and is being undone
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rarely := locking.Options{Backoff: locking.Backoff{Base: time.Minute, Max: time.Minute}}
	waited := s.wait(ctx, b, rarely)
	s.busy(late, key) // time for the refusal of b's first attempt
	s.release(a, held)
	lease, err := late.TryAcquire(s.within(deadline), key)
	if err == nil {
		s.release(late, lease)
	}
	cancel()
	<-waited
	return err == nil
}
