// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// waiter starts a request for a held key. Requests of other stores give it time to wait.
func (s *suite) waiter(store, other locking.Store, key string) <-chan Outcome[locking.Lease] {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	s.Cleanup(cancel)
	granted := Beside(func() (locking.Lease, error) { return locking.Acquire(ctx, store, options(), key) })
	for range 3 {
		_ = busy(ctx, other, key)
	}
	return granted
}

// handOverOwn checks that the release of a lost lease gives a waiter of its store no key of another holder, and that the
// releases after it give the waiters of one store greater fences. A store may pass a key to a waiter in the request that releases it.
func handOverOwn(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	lost := s.try(a, key)
	s.release(a, lost)
	held := s.try(b, key)
	first := s.waiter(a, b, key)
	s.lost(a, lost)
	s.busy(a, key)
	held = s.renew(b, held)
	select {
	case got := <-first:
		s.Fatalf("granted %+v, %v, while another holds the key", got.Reply, got.Err)
	default:
	}
	second := s.waiter(a, b, key)
	s.release(b, held)
	for last := held; first != nil || second != nil; {
		var got Outcome[locking.Lease]
		select { // which of them is the first is not promised
		case got = <-first:
			first = nil
		case got = <-second:
			second = nil
		}
		last = s.handedOver(a, b, last, got)
	}
}

// handedOver checks the grant of a waiter after the lease last, and releases it.
func (s *suite) handedOver(store, other locking.Store, last locking.Lease, got Outcome[locking.Lease]) locking.Lease {
	s.Helper()
	next, err := got.Pair()
	if err != nil {
		s.Fatalf("a waiter: %v", err)
	}
	s.inspect(next, []string{key})
	if s.Fences && next.Fence <= last.Fence || next.Owner == last.Owner {
		s.Errorf("granted %+v after %+v", next, last)
	}
	s.busy(other, key)
	s.lost(store, last)
	s.release(store, s.renew(store, next))
	return next
}

// handOverUntil checks that a waiter of the store that releases holds the key until its Until, and not only until that of
// the lease before.
func handOverUntil(s *suite) {
	s.rounds(900*time.Millisecond, func(ttl time.Duration, key string) error {
		a, b := s.open(ttl), s.open(s.long())
		held := s.acquire(deadline, a, key)
		waiter := s.waiter(a, b, key)
		<-time.After(min(ttl, time.Until(held.Until)) / 2)
		if err := release(s.within(deadline), a, held); err != nil {
			return s.void(held, err)
		}
		next, err := (<-waiter).Pair()
		if err != nil {
			return err
		}
		for end := time.Now().Add(ttl); time.Now().Before(next.Until) && time.Now().Before(end); <-time.After(ttl / 50) {
			lease, err := b.TryAcquire(s.within(deadline), key)
			switch now := time.Now(); {
			case !answered(err), !now.Before(next.Until):
			case !errors.Is(err, locking.ErrBusy):
				s.Fatalf("granted %+v, %v before the Until of the lease that was handed over", lease, next.Until.Sub(now))
			}
		}
		if !next.Until.After(held.Until) {
			return fmt.Errorf("granted until %v before the end of the lease before it", held.Until.Sub(next.Until))
		}
		return nil
	})
}
