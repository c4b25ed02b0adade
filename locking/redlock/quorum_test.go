package redlock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// What an acquisition does for each distribution of the votes: the servers that another
// owner has before, and what is there afterwards.
func TestTryAcquire_CountsVotes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		x, y    []int // servers of two other owners
		granted bool
	}{
		"all are free":                  {nil, nil, true},
		"another owner has two":         {[]int{0, 4}, nil, true},
		"two others have one each":      {[]int{1}, []int{3}, true},
		"another owner has three":       {[]int{0, 2, 4}, nil, false},
		"two others have two each":      {[]int{0, 1}, []int{2, 3}, false},
		"another owner has all of them": {[]int{0, 1, 2, 3, 4}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, shared, 10*time.Second)
			s.put(t, "k", "x", c.x...)
			s.put(t, "k", "y", c.y...)
			before := s.owners(t, "k")
			if !c.granted {
				locktest.WantHeld(t, s, "k")
				wantOwners(t, s, before)
				return
			}
			lease := locktest.Taken(t, s, "k")
			votes := 0
			for i, owner := range s.owners(t, "k") {
				if owner == lease.Owner {
					votes++
				}
				if before[i] != "" && owner != before[i] {
					t.Errorf("server %d has the owner %q, had %q", i, owner, before[i])
				}
			}
			if votes < 3 {
				t.Errorf("granted by %d votes", votes)
			}
			locktest.Released(t, s, lease)
			wantOwners(t, s, before)
		})
	}
}

// A lease that a minority no longer has is held; one that a majority no longer has is lost
// for good, and released on the others.
func TestRenewAndRelease_CountVotes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone []int
		lost bool
	}{
		"gone from two":   {[]int{1, 2}, false},
		"gone from three": {[]int{1, 2, 4}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, shared, 10*time.Second)
			lease := locking.Lease{Keys: []string{"k"}, Owner: "me"}
			for verb, request := range map[string]func() error{
				"renew":   func() error { _, err := s.Renew(t.Context(), lease); return err },
				"release": func() error { return s.Release(t.Context(), lease) },
			} {
				err := locktest.Insist(t.Context(), func(bool) error {
					s.put(t, "k", "me", 0, 1, 2, 3, 4)
					s.put(t, "k", "", c.gone...)
					return request()
				})
				if c.lost != errors.Is(err, locking.ErrLost) {
					t.Errorf("%s: got %v, lost: %t", verb, err, c.lost)
				}
				if c.lost || verb == "release" {
					wantOwners(t, s, make([]string, five))
				}
			}
		})
	}
}

// Until is the time before the request plus the TTL less CLOCK_DRIFT, a hundredth + 2 ms,
// however long the answers took.
func TestUntil_IsTheValidityOfTheManual(t *testing.T) {
	t.Parallel()
	const ttl, drift = 10 * time.Second, 102 * time.Millisecond
	s := newStore(t, shared, ttl)
	within := func(what string, before, after time.Time, l locking.Lease) {
		t.Helper()
		if start := l.Until.Add(drift - ttl); start.Before(before) || start.After(after) {
			t.Errorf("%s between %v and %v: Until is %v", what, before, after, l.Until)
		}
	}
	before := time.Now()
	lease := locktest.Taken(t, s, "k")
	within("granted", before, time.Now(), lease)
	before = time.Now()
	lease = renew(t, s, lease)
	within("renewed", before, time.Now(), lease)
}

// A grant whose validity is over before it is counted is no grant.
func TestTryAcquire_TooLateIsNoGrant(t *testing.T) {
	t.Parallel()
	s := newStore(t, shared, 10*time.Second)
	held, trust := locktest.Taken(t, s, "k"), s.trust
	s.trust = 0
	if l, err := s.Renew(t.Context(), held); err == nil || errors.Is(err, locking.ErrLost) || !l.Until.Equal(held.Until) {
		t.Errorf("renew: got %+v and %v, want the old lease and an error that is not ErrLost", l, err)
	}
	locktest.Released(t, s, held)
	if l, err := s.TryAcquire(t.Context(), "k"); err == nil || errors.Is(err, locking.ErrBusy) {
		t.Errorf("acquire: got %+v and %v, want an error that is not ErrBusy", l, err)
	}
	wantOwners(t, s, make([]string, five))
	s.trust = trust
	locktest.Taken(t, s, "k")
}

// With two servers down nothing changes. With three down there is no grant, and no ErrBusy.
func TestServers_AMajorityIsEnough(t *testing.T) {
	locktest.Slow(t, "a restart of Redis")
	t.Parallel()
	servers := start(t, five)
	s := newStore(t, urls(servers), 20*time.Second)
	first := locktest.Taken(t, s, "k")
	servers[0].Kill()
	servers[1].Kill()
	locktest.WantHeld(t, s, "k")
	locktest.Released(t, s, renew(t, s, first))
	second := locktest.Taken(t, s, "k")

	servers[2].Kill()
	for what, request := range map[string]func() error{
		"acquire": func() error { _, err := s.TryAcquire(t.Context(), "other"); return err },
		"renew":   func() error { _, err := s.Renew(t.Context(), second); return err },
		"release": func() error { return s.Release(t.Context(), second) },
	} {
		asked := time.Now()
		if err := request(); err == nil || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrLost) {
			t.Errorf("three servers are down: %s: got %v, want an error that is neither ErrBusy nor ErrLost", what, err)
		}
		if took := time.Since(asked); took > s.ttl/4 {
			t.Errorf("three servers are down: %s took %v", what, took)
		}
	}
	locktest.Eventually(t, "the two servers keep nothing of the request that failed", func() bool {
		return slices.Equal(s.owners(t, "other"), make([]string, five))
	})
}

func urls(servers []*locktest.Server) (urls []string) {
	for _, s := range servers {
		urls = append(urls, "redis://"+s.Addr)
	}
	return urls
}

// A restarted server that kept its data does not vote again.
func TestServers_RestartWithTheDataKeepsTheVote(t *testing.T) {
	locktest.Slow(t, "a restart of Redis")
	t.Parallel()
	servers := start(t, 3, locktest.Durable...)
	s := newStore(t, urls(servers), 20*time.Second)
	servers[2].Kill()
	lease := locktest.Taken(t, s, "k") // on the two others
	servers[2].Start()
	servers[1].Restart()
	locktest.Eventually(t, "the connections are back", func() bool {
		votes, err := s.ask(s.do.renew, s.lock("k", lease.Owner)).wait(t.Context())
		return err == nil && votes.yes == 2 && votes.no == 1
	})
	locktest.WantHeld(t, s, "k")
	locktest.Released(t, s, lease)
}
