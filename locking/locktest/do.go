package locktest

import (
	"context"

	"shop/locking"
)

// doPanic checks that a panic in fn releases the lease.
func doPanic(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				s.Errorf("recovered %v, want fn's panic", got)
			}
		}()
		err := locking.Do(s.within(deadline), a, options(), []string{key}, func(context.Context, locking.Lease) error {
			s.busy(b, key)
			panic("boom")
		})
		s.Errorf("Do returned %v", err)
	}()
	s.release(b, s.try(b, key))
}
