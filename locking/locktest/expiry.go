// SPDX-License-Identifier: MIT

package locktest

import (
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// expires checks that the keys of a holder that is gone become free within the TTL, and
// not before the holder's Until. A stall of the machine makes it later.
func expires(s *suite) { s.rounds(s.short(), s.freed) }

func (s *suite) freed(ttl time.Duration, key string) error {
	a, b := s.open(ttl), s.open(s.long())
	before := time.Now()
	lease := s.try(a, key)
	after := time.Now()
	if lease.Until.After(after.Add(ttl)) || !lease.Until.After(before) {
		s.Errorf("requested at %v, answered at %v, with TTL %v: Until is %v", before, after, ttl, lease.Until)
	}
	next, err := b.TryAcquire(s.within(deadline), key)
	switch {
	case !time.Now().Before(lease.Until):
		return errors.New("the lease expired before another store had requested its key")
	case !answered(err):
		return err
	case !errors.Is(err, locking.ErrBusy):
		s.Fatalf("got %+v and %v, want ErrBusy", next, err)
	}
	if next, err = acquire(s.within(ttl+atOnce), b, key); err != nil {
		return fmt.Errorf("not free %v after a TTL of %v: %w", atOnce, ttl, err)
	}
	if now := time.Now(); now.Before(lease.Until) {
		s.Errorf("another holder %v before the first one's Until", lease.Until.Sub(now))
	}
	s.lost(a, lease)
	s.release(b, next)
	return nil
}

// expiresOnTime checks that a refused Renew changes nothing. A Renew by another owner,
// with a longer TTL, must not keep the keys past the holder's own TTL: no release would
// free them.
func expiresOnTime(s *suite) {
	a, b, c := s.open(s.long()), s.open(s.short()), s.open(s.long())
	was := s.try(a, key)
	s.release(a, was)
	holds := s.try(b, key)
	forged := holds
	forged.Owner = "other"
	s.lost(a, was)
	s.lost(a, forged)
	next := s.acquire(deadline/2, c, key) // far less than the TTL of the refused Renew
	if now := time.Now(); now.Before(holds.Until) {
		s.Errorf("another holder %v before Until", holds.Until.Sub(now))
	}
	s.release(c, next)
}

// expiresNot shows that a key without a renewal does not expire.
func expiresNot(s *suite) {
	a, b := s.open(s.short()), s.open(s.short())
	lease := s.try(a, key)
	tick := time.NewTicker(s.short() / 4)
	defer tick.Stop()
	for end := time.Now().Add(2 * s.short()); time.Now().Before(end); <-tick.C {
		s.busy(b, key)
	}
	s.release(a, lease)
	s.release(b, s.try(b, key))
}

// untilFromRequest checks that a late answer does not extend the trust. A store that
// counts from the answer still trusts its lease when the key is free already.
//
// Each answer is delayed, so that its request was sent at least that long ago, even if
// the store has retried it. A stall of the machine between the answer and the check may
// hide the mistake, hence the rounds.
func untilFromRequest(s *suite) {
	const late = 150 * time.Millisecond
	w, ttl := s.proxied(s.ttl(5 * time.Second))
	w.Delay(late)
	for range 3 {
		lease := s.try(w.Store, key)
		s.countsFromRequest("acquired", lease, ttl, late)
		lease = s.renew(w.Store, lease)
		s.countsFromRequest("renewed", lease, ttl, late)
		s.release(w.Store, lease)
	}
}

func (s *suite) countsFromRequest(what string, l locking.Lease, ttl, late time.Duration) {
	s.Helper()
	if over := l.Until.Sub(time.Now().Add(ttl - late)); over > 0 {
		s.Errorf("%s: Until is beyond the request + TTL, by at least %v", what, over)
	}
}

// ttlBad checks that a TTL that cannot be represented is refused, not rounded.
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
