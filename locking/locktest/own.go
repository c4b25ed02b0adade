package locktest

import (
	"time"

	"shop/locking"
)

// ownOnly: those who do not hold the key can neither give it back nor keep it.
func ownOnly(s *suite) {
	a, b := s.open(s.short()), s.open(s.long())
	first := s.try(a, key)
	s.release(a, first)
	second := s.try(b, key)
	if first.Owner == second.Owner {
		s.Errorf("two acquisitions have the owner %q", first.Owner)
	}
	s.lost(a, first) // was ours once
	forged := second
	forged.Owner = "somebody"
	s.lost(b, forged)                                                 // never was
	s.lost(a, locking.Lease{})                                        // of nothing
	s.lost(a, locking.Lease{Keys: []string{"free"}, Owner: "nobody"}) // of what nobody holds
	s.busy(a, key)
	s.release(b, s.renew(b, second))
	s.release(a, s.try(a, "free"))
}

// lostStaysLost: a lease that ended is over, even while the key is free.
func lostStaysLost(s *suite) {
	a, b := s.open(s.short()), s.open(s.long())
	released := s.try(a, key)
	s.release(a, released)
	s.lost(a, released)
	s.release(b, s.try(b, key)) // Renew did not take it again

	if !s.Expires {
		return
	}
	expired := s.try(a, key)
	s.try(a, "later")
	s.acquire(patience, b, "later") // that one has run out, so the one before has
	s.lost(a, expired)
	next := s.try(b, key) // free: neither Renew nor Release took it again
	s.lost(a, expired)
	s.busy(a, key)
	s.release(b, next)
	s.lost(a, expired)
}

// renewKeeps: a lease that is renewed in time outlives its TTL.
func renewKeeps(s *suite) {
	ttl := s.ttl(900 * time.Millisecond)
	a, b := s.open(ttl), s.open(s.long())
	lease := s.try(a, key)
	granted := lease
	renew := time.NewTicker(ttl / 3)
	defer renew.Stop()
	for time.Now().Before(granted.Until.Add(ttl)) {
		<-renew.C
		next := s.renew(a, lease)
		if next.Until.After(time.Now().Add(ttl)) || !next.Until.After(lease.Until) {
			s.Errorf("renewed by now, with TTL %v: Until is %v, was %v", ttl, next.Until, lease.Until)
		}
		s.busy(b, key)
		if next.Owner != granted.Owner || next.Fence != granted.Fence {
			s.Errorf("renewed %+v is another grant than %+v", next, granted)
		}
		lease = next
	}
	s.release(a, lease)
	s.release(b, s.try(b, key))
}
