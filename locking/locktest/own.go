// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// ownOnly checks that only the holder of a key can release or renew it.
func ownOnly(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	first := s.try(a, key)
	s.release(a, first)
	second := s.try(b, key)
	if first.Owner == second.Owner {
		s.Errorf("two acquisitions have the owner %q", first.Owner)
	}
	s.lost(a, first) // released
	forged := second
	forged.Owner = "other"
	s.lost(b, forged)                                                // never granted
	s.lost(a, locking.Lease{})                                       // without keys
	s.lost(a, locking.Lease{Keys: []string{"free"}, Owner: "other"}) // a key without a holder
	s.busy(a, key)
	s.release(b, s.renew(b, second))
	s.release(a, s.try(a, "free"))
}

// lostStaysLost checks that a lease that has ended stays lost, even while its key is free.
func lostStaysLost(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	released := s.try(a, key)
	s.release(a, released)
	s.lost(a, released)
	s.release(b, s.try(b, key)) // Renew did not take it again

	if !s.Expires {
		return
	}
	s.rounds(s.short(), s.expiredStaysLost)
}

// expiredStaysLost checks that Renew does not take the key of an expired lease again:
// otherwise the key would be held for a TTL, and not be free in time in any round. A
// stall of the machine delays the acquisition too.
func (s *suite) expiredStaysLost(ttl time.Duration, key string) error {
	a, b := s.open(ttl), s.open(s.long())
	expired := s.try(a, key)
	s.try(a, key+"/later")
	later := s.acquire(deadline, b, key+"/later") // it has expired, and so has the earlier one
	asked, ctx := time.Now(), s.within(deadline)
	// A request that was sent twice may have arrived late, and have restarted the TTL of the same grant.
	if err := Insist(ctx, func(bool) error { _, err := a.Renew(ctx, expired); return err }); err == nil {
		_ = a.Release(ctx, expired)
		_ = b.Release(ctx, later)
		return fmt.Errorf("a lease was renewed after a later one with the same TTL, %v, had expired", ttl)
	}
	s.lost(a, expired)
	next := s.acquire(deadline, b, key)
	took := time.Since(asked)
	s.lost(a, expired)
	s.busy(a, key)
	s.release(b, next)
	s.lost(a, expired)
	s.release(b, later)
	if took >= ttl {
		return fmt.Errorf("after a lost lease was renewed, its key was not free within a TTL of %v", ttl)
	}
	return nil
}

// renewKeeps checks that a lease that is renewed in time outlives its TTL. A round is
// void if the machine stalled until the lease had expired.
func renewKeeps(s *suite) {
	s.rounds(900*time.Millisecond, func(ttl time.Duration, key string) error {
		if !s.outlives(ttl, key) {
			return fmt.Errorf("no lease with a TTL of %v was renewed in time", ttl)
		}
		return nil
	})
}

// outlives renews a lease until it is twice as old as its TTL.
func (s *suite) outlives(ttl time.Duration, key string) bool {
	a, b := s.open(ttl), s.open(s.long())
	lease := s.acquire(deadline, a, key)
	granted := lease
	pace := time.NewTicker(ttl / 3)
	defer pace.Stop()
	for time.Now().Before(granted.Until.Add(ttl)) {
		<-pace.C
		next, err := a.Renew(s.within(deadline), lease)
		if !time.Now().Before(lease.Until) {
			return false
		}
		if !answered(err) {
			continue
		}
		if err != nil {
			s.Fatalf("renew %v before the end: %v", time.Until(lease.Until), err)
		}
		if next.Until.After(time.Now().Add(ttl)) || !next.Until.After(lease.Until) {
			s.Errorf("renewed by now, with TTL %v: Until is %v, was %v", ttl, next.Until, lease.Until)
		}
		if next.Owner != granted.Owner || next.Fence != granted.Fence {
			s.Errorf("renewed %+v is another grant than %+v", next, granted)
		}
		taken, err := b.TryAcquire(s.within(deadline), key)
		if lease = next; !time.Now().Before(lease.Until) {
			return false
		}
		if answered(err) && !errors.Is(err, locking.ErrBusy) {
			s.Fatalf("acquire what is renewed: got %+v and %v, want ErrBusy", taken, err)
		}
	}
	s.release(a, lease)
	s.release(b, s.try(b, key))
	return true
}
