package locktest

import (
	"time"
)

// expires: the keys of a holder that is gone are free within the TTL, and not
// while he may still believe in them.
func expires(s *suite) {
	a, b := s.open(s.short()), s.open(s.long())
	before := time.Now()
	lease := s.try(a, key)
	s.busy(b, key)
	if lease.Until.After(before.Add(s.short())) || !lease.Until.After(before) {
		s.Errorf("asked at %v with TTL %v: Until is %v", before, s.short(), lease.Until)
	}
	next := s.acquire(s.short()+atOnce, b, key)
	if now := time.Now(); now.Before(lease.Until) {
		s.Errorf("another holder %v before the first one's Until", lease.Until.Sub(now))
	}
	s.lost(a, lease)
	s.release(b, next)
}

// expiresNot shows that a key without renewal is held on and on.
func expiresNot(s *suite) {
	a, b := s.open(s.short()), s.open(s.short())
	lease := s.try(a, key)
	ask := time.NewTicker(s.short() / 4)
	defer ask.Stop()
	for end := time.Now().Add(2 * s.short()); time.Now().Before(end); <-ask.C {
		s.busy(b, key)
	}
	s.release(a, lease)
	s.release(b, s.try(b, key))
}

// untilFromRequest: an answer that is late brings no trust with it. A store that
// counts from the answer believes in its lease when the key is free already.
func untilFromRequest(s *suite) {
	ttl := s.ttl(3 * time.Second)
	w := s.wire(ttl)
	w.Delay(150 * time.Millisecond)

	before := time.Now()
	lease := s.try(w.Store, key)
	if late := lease.Until.Sub(before.Add(ttl)); late > 0 {
		s.Errorf("acquire: Until is %v beyond the request + TTL", late)
	}
	before = time.Now()
	next, err := w.Store.Renew(s.within(patience), lease)
	if err != nil {
		s.Fatalf("renew: %v", err)
	}
	if late := next.Until.Sub(before.Add(ttl)); late > 0 {
		s.Errorf("renew: Until is %v beyond the request + TTL", late)
	}
	s.release(w.Store, next)
}

// ttlBad: what cannot be represented is refused, not rounded.
func ttlBad(s *suite) {
	bad := s.BadTTLs
	if s.MinTTL > 0 {
		s.open(s.MinTTL)
		s.open(2 * s.MinTTL)
		bad = append(bad, 0, -s.MinTTL, s.MinTTL/2, s.MinTTL-1, s.MinTTL+1, 10*s.MinTTL+s.MinTTL/1000+1)
	}
	for _, ttl := range bad {
		if store, err := s.Open(ttl); err == nil {
			s.Errorf("opened with TTL %v: %+v", ttl, store)
		}
	}
}
