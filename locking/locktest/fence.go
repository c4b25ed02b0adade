// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"

	"shop/locking"
)

// fenceGrows checks that the fence grows strictly from grant to grant, whichever store
// makes the request and however the previous grant ended.
func fenceGrows(s *suite) {
	stores := []locking.Store{s.open(s.long()), s.open(s.long()), s.open(s.long())}
	last := locking.Fence(0)
	grant := func(store locking.Store) locking.Lease {
		lease := s.acquire(deadline, store, key)
		if lease.Fence <= last {
			s.Errorf("fence %d after fence %d", lease.Fence, last)
		}
		last = lease.Fence
		return lease
	}
	for i := range 30 {
		store := stores[i%len(stores)]
		s.release(store, grant(store))
	}
	if s.Expires {
		grant(s.open(s.short())) // expires
	}
	grant(stores[0])
}

// fenceNone checks that a store without fences returns 0, which every guard refuses, and
// not a meaningless number.
func fenceNone(s *suite) {
	store := s.open(s.long())
	for range 3 {
		lease := s.try(store, key)
		if lease.Fence != 0 {
			s.Errorf("fence %d from a store that promises none", lease.Fence)
		}
		s.release(store, lease)
	}
}

// fenceRestart checks that a restart with the data keeps all leases and fences.
func fenceRestart(s *suite) {
	b, restart := s.Restartable()
	s.Backend = b
	a, other := s.open(s.long()), s.open(s.long())
	past := s.try(a, key)
	s.release(a, past)
	held := s.try(a, "held")

	restart()
	s.eventually("the holder renews after the restart", func() bool {
		next, err := a.Renew(s.within(deadline), held)
		if errors.Is(err, locking.ErrLost) {
			s.Fatalf("a lease within its TTL was lost by the restart")
		}
		held = next
		return err == nil
	})
	s.busy(other, "held")
	if next := s.acquire(deadline, other, key); next.Fence <= past.Fence {
		s.Errorf("fence %d after the restart, %d before", next.Fence, past.Fence)
	}
	s.release(a, held)
	if next := s.try(other, "held"); next.Fence <= held.Fence {
		s.Errorf("fence %d after the restart, %d before", next.Fence, held.Fence)
	}
}

// fenceRestartNot shows a fence that is not greater than one before the restart.
func fenceRestartNot(s *suite) {
	b, restart := s.Restartable()
	s.Backend = b
	store := s.open(s.long())
	var past locking.Lease
	for range 5 {
		past = s.acquire(deadline, store, key)
		s.release(store, past)
	}
	restart()
	if next := s.acquire(deadline, s.open(s.long()), key); next.Fence > past.Fence {
		s.Errorf("fence %d after the restart, %d before: it persists, so promise FencePersists", next.Fence, past.Fence)
	}
}
