package locktest

import (
	"errors"
	"math"
	"time"

	"shop/locking"
)

// free checks that the keys become free within the TTL, without a release.
func (s *suite) free(ttl time.Duration, store locking.Store, keys ...string) {
	s.Helper()
	s.release(store, s.acquire(ttl+3*atOnce, store, keys...))
}

// replyLostOnAcquire: the server granted the key, and its reply is lost. There is no
// other holder, so ErrBusy is wrong. The store must either find its grant, or return
// ErrOutcomeUnknown and let the key become free within the TTL.
func replyLostOnAcquire(s *suite) {
	w, ttl := s.proxied(s.ttl(3 * time.Second))
	other := s.open(s.long())
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
		s.busy(other, key)
		if next := s.renew(w.Store, lease); next.Fence != lease.Fence {
			s.Errorf("granted by a lost reply: fence %d, renewed: %d", lease.Fence, next.Fence)
		}
		s.release(w.Store, lease)
	}
	s.free(ttl, other, key)
}

// replyNeverComes checks that the store stops retrying within the TTL, returns an error
// other than ErrBusy, and frees what it may have taken within the TTL.
func replyNeverComes(s *suite) {
	w, ttl := s.proxied(s.ttl(1200 * time.Millisecond))
	other := s.open(s.long())
	w.Lose(math.MaxInt)
	asked := time.Now()
	lease, err := w.Store.TryAcquire(s.within(deadline), key)
	took := time.Since(asked)
	w.Lose(0)
	if err == nil || errors.Is(err, locking.ErrBusy) {
		s.Errorf("got %+v and %v, want an error that is not ErrBusy", lease, err)
	}
	if took > ttl+atOnce {
		s.Errorf("retried for %v, with a TTL of %v", took, ttl)
	}
	s.free(ttl, other, key)
}

// replyLostOnRelease checks that the key becomes free, and that the release of a held
// lease is not ErrLost.
func replyLostOnRelease(s *suite) {
	w, ttl := s.proxied(s.ttl(1200 * time.Millisecond))
	other := s.open(s.long())
	lease := s.try(w.Store, key)
	w.Lose(1)
	if err := w.Store.Release(s.within(deadline), lease); errors.Is(err, locking.ErrLost) {
		s.Errorf("got %v for a lease that was held", err)
	}
	s.free(ttl, other, key)
}

// replyLostOnRenew checks that a lost reply is no ErrLost, and that the lease can still be
// renewed. On a machine so busy that the lease expires meanwhile, it tries a TTL twice as long.
func replyLostOnRenew(s *suite) {
	other := s.open(s.long())
	for ttl := s.ttl(3 * time.Second); ; ttl *= 2 {
		var w Proxied
		w, ttl = s.proxied(ttl)
		lease := s.try(w.Store, key)
		w.Lose(1)
		next, err := w.Store.Renew(s.within(deadline), lease)
		if err == nil {
			lease = next
		}
		if !errors.Is(err, locking.ErrLost) {
			s.busy(other, key)
			ctx := s.within(deadline)
			err = insist(ctx, func(bool) (err error) {
				next, err = w.Store.Renew(ctx, lease)
				return err
			})
		}
		switch expired := !lease.Until.IsZero() && time.Now().After(lease.Until); {
		case err == nil:
			s.release(w.Store, next)
			return
		case !expired || ttl > deadline:
			s.Fatalf("got %v for a lease that is held", err)
		}
		s.free(ttl, other, key)
	}
}
