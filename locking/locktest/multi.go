// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"slices"
	"sync"

	"shop/locking"
)

// multiAllOrNone checks that a request takes no key if one is busy, and otherwise all.
func multiAllOrNone(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	one := s.try(a, "b")
	for _, keys := range [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}} {
		s.busy(b, keys...)
		s.release(a, s.try(a, "a"))
		s.release(a, s.try(a, "c"))
	}
	s.release(a, one)

	all := s.try(b, "c", "a", "b")
	if keys := slices.Sorted(slices.Values(all.Keys)); !slices.Equal(keys, []string{"a", "b", "c"}) {
		s.Errorf("lease of a, b, c has the keys %q", keys)
	}
	for _, k := range all.Keys {
		s.busy(a, k)
	}
	s.release(b, s.renew(b, all))
	s.release(a, s.try(a, "a", "b", "c"))
}

// multiRefused checks that a store for single keys refuses several and takes none of them.
func multiRefused(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	if lease, err := a.TryAcquire(s.within(deadline), "a", "b"); err == nil || errors.Is(err, locking.ErrBusy) {
		s.Errorf("two keys: got %+v and %v, want an error that is not ErrBusy", lease, err)
	}
	s.release(b, s.try(b, "a"))
	s.release(b, s.try(b, "b"))
}

// multiOrders checks that requests for the same keys in opposite orders are all granted.
func multiOrders(s *suite) {
	store := s.open(s.long())
	var all sync.WaitGroup
	for _, keys := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a", "b"}} {
		all.Go(func() {
			for range 10 {
				ctx := s.within(deadline)
				lease, err := acquire(ctx, store, keys...)
				if err == nil {
					err = release(ctx, store, lease)
				}
				if err != nil {
					s.Errorf("%q: %v", keys, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// multiFence checks that the fence of several keys is greater than every earlier fence
// of each of them, and that their later fences are greater still.
func multiFence(s *suite) {
	store := s.open(s.long())
	last := map[string]locking.Fence{}
	for range 5 {
		for _, keys := range [][]string{{"a"}, {"b"}, {"b"}, {"a", "b"}, {"b", "c"}, {"c"}, {"c", "b", "a"}} {
			lease := s.try(store, keys...)
			for _, k := range keys {
				if lease.Fence <= last[k] {
					s.Errorf("%q: fence %d, but %q had %d", keys, lease.Fence, k, last[k])
				}
				last[k] = lease.Fence
			}
			s.release(store, lease)
		}
	}
}
