// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"shop/locking"
)

// free returns an error unless the key becomes free within the TTL, without a release.
func (s *suite) free(ttl time.Duration, store locking.Store, key string) error {
	s.Helper()
	limit := ttl + 3*atOnce
	lease, err := acquire(s.within(limit), store, key)
	if err != nil {
		return fmt.Errorf("not free within %v, with a TTL of %v: %w", limit, ttl, err)
	}
	s.inspect(lease, []string{key})
	s.release(store, lease)
	return nil
}

// replyLostOnAcquire: the server granted the key, and its reply is lost. There is no
// other holder, so ErrBusy is wrong. The store must either find its grant, or return
// ErrOutcomeUnknown and let the key become free within the TTL.
func replyLostOnAcquire(s *suite) {
	s.rounds(3*time.Second, func(ttl time.Duration, key string) error {
		w, ttl := s.proxied(ttl)
		other := s.open(s.long())
		err := s.lostOnAcquire(w, other, ttl, key)
		if err == nil { // again, as a store may grant a key that was held before by another statement
			err = s.lostOnAcquire(w, other, ttl, key)
		}
		return err
	})
}

func (s *suite) lostOnAcquire(w Proxied, other locking.Store, ttl time.Duration, key string) error {
	s.Helper()
	w.Lose(1)
	lease, err := w.Store.TryAcquire(s.within(deadline), key)
	answered := time.Now()
	switch {
	case errors.Is(err, locking.ErrBusy):
		s.Errorf("got %v, but the key has no other holder", err)
	case err == nil:
		s.inspect(lease, []string{key})
		if s.Expires && lease.Until.After(answered.Add(ttl)) {
			s.Errorf("Until is %v after the answer, with a TTL of %v", lease.Until.Sub(answered), ttl)
		}
		if err := s.serves(w.Store, other, lease); err != nil {
			return err
		}
	}
	return s.free(ttl, other, key)
}

// serves checks that a lease excludes another store, can be renewed with its fence, and can
// be released. It returns an error if the lease expired meanwhile: the round is void.
func (s *suite) serves(store, other locking.Store, l locking.Lease) error {
	s.Helper()
	ctx := s.within(deadline)
	err := busy(ctx, other, l.Keys...)
	next := l
	if err == nil {
		next, err = renew(ctx, store, l)
	}
	if err == nil && next.Fence != l.Fence {
		s.Errorf("granted with the fence %d, renewed: %d", l.Fence, next.Fence)
	}
	if err == nil {
		err = release(ctx, store, next)
	}
	return s.void(l, err)
}

// replyNeverComes checks that the store stops retrying within the TTL, returns an error
// other than ErrBusy, and frees what it may have taken within the TTL.
func replyNeverComes(s *suite) {
	s.rounds(1200*time.Millisecond, func(ttl time.Duration, key string) error {
		w, ttl := s.proxied(ttl)
		other := s.open(s.long())
		s.release(other, s.try(other, key)) // for a store that grants a key that was held before by another statement
		w.Lose(math.MaxInt)
		asked := time.Now()
		lease, err := w.Store.TryAcquire(s.within(deadline), key)
		took := time.Since(asked)
		w.Lose(0)
		if err == nil || errors.Is(err, locking.ErrBusy) {
			s.Errorf("got %+v and %v, want an error that is not ErrBusy", lease, err)
		}
		if took > ttl+atOnce {
			return fmt.Errorf("retried for %v, with a TTL of %v", took, ttl)
		}
		return s.free(ttl, other, key)
	})
}

// replyLostOnRelease checks that the key becomes free, and that the release of a held
// lease is not ErrLost.
func replyLostOnRelease(s *suite) {
	s.rounds(1200*time.Millisecond, func(ttl time.Duration, key string) error {
		w, ttl := s.proxied(ttl)
		other := s.open(s.long())
		lease := s.try(w.Store, key)
		w.Lose(1)
		if err := w.Store.Release(s.within(deadline), lease); errors.Is(err, locking.ErrLost) {
			return s.void(lease, err)
		}
		return s.free(ttl, other, key)
	})
}

// replyLostOnHandOver is replyLostOnRelease while another request of the store waits: the store may pass the key to it
// with the request whose reply is lost. The waiter must be granted the key, with a lease that excludes others.
func replyLostOnHandOver(s *suite) {
	s.rounds(3*time.Second, func(ttl time.Duration, key string) error {
		w, _ := s.proxied(ttl)
		other := s.open(s.long())
		lease := s.try(w.Store, key)
		waiter := s.waiter(w.Store, other, key)
		w.Lose(1)
		if err := w.Store.Release(s.within(deadline), lease); errors.Is(err, locking.ErrLost) {
			return s.void(lease, err)
		}
		next, err := (<-waiter).Pair()
		w.Lose(0)
		if err != nil {
			return fmt.Errorf("the waiter: %w", err)
		}
		s.inspect(next, []string{key})
		if s.Fences && next.Fence <= lease.Fence {
			s.Errorf("fence %d after %d", next.Fence, lease.Fence)
		}
		return s.serves(w.Store, other, next)
	})
}

// replyLostOnRenew checks that a lost reply is no ErrLost, and that the lease can still be
// renewed.
func replyLostOnRenew(s *suite) {
	s.rounds(3*time.Second, func(ttl time.Duration, key string) error {
		w, _ := s.proxied(ttl)
		lease := s.try(w.Store, key)
		w.Lose(1)
		next, err := w.Store.Renew(s.within(deadline), lease)
		if errors.Is(err, locking.ErrLost) {
			return s.void(lease, err)
		}
		if err == nil {
			lease = next
		}
		return s.serves(w.Store, s.open(s.long()), lease)
	})
}
