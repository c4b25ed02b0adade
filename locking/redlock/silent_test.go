package redlock

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// behindProxies makes a Store behind proxies, with its connections made, and another that
// connects directly. The proxies disturb only requests for the key k: on a slow machine the Store
// may still delete the key of the first exchange.
func behindProxies(t *testing.T, ttl time.Duration) (s *Store, proxies []*locktest.Faults, other *Store) {
	t.Helper()
	prefix := newPrefix()
	proxies, through := disturb(t, shared, prefix+":k\r\n")
	s = sibling(t, through, ttl, prefix)
	locktest.Released(t, s, locktest.Taken(t, s, "warm-up"))
	return s, proxies, sibling(t, shared, ttl, prefix)
}

// Two servers that do not answer cost time, and no request. What they may have taken is
// removed when they answer again.
func TestSilence_OfAMinority(t *testing.T) {
	t.Parallel()
	s, proxies, other := behindProxies(t, 20*time.Second)
	for _, p := range proxies[:2] {
		p.Lose(math.MaxInt)
	}
	lease := locktest.Taken(t, s, "k")
	locktest.WantHeld(t, other, "k")
	lease = renew(t, s, lease)
	for _, p := range proxies[:2] { // their deletions are lost too
		p.Lose(0)
		p.Drop(1)
	}
	locktest.Released(t, s, lease)
	wantOwners(t, other, make([]string, five))
}

// Three servers that do not answer are no busy key: the outcome is unknown, and what the
// request has taken is removed long before its TTL.
func TestSilence_OfAMajority(t *testing.T) {
	t.Parallel()
	s, proxies, other := behindProxies(t, 20*time.Second)
	for _, p := range proxies[:3] {
		p.Lose(1)
	}
	_, err := s.TryAcquire(t.Context(), "k")
	if !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an unknown outcome, not busy, and no end of ctx", err)
	}
	wantOwners(t, other, make([]string, five))
}

// A caller that leaves leaves nothing behind: on each server the deletion follows the
// request that it undoes, although it has another connection.
func TestCancel_TheDeletionFollowsTheRequest(t *testing.T) {
	t.Parallel()
	const timeout = 15 * time.Second // a request that timed out would be overtaken
	arrived, hold, granted := make(chan struct{}, five), make(chan struct{}), make(chan struct{}, five)
	resume := sync.OnceFunc(func() { close(hold) })
	var through []string
	for _, server := range shared {
		p := locktest.NewProxy(t, host(server))
		p.OnRequest(func(request []byte, _, _ net.Conn) bool {
			if bytes.Contains(request, []byte("\r\nset\r\n")) {
				p.OnReply(func([]byte, net.Conn, net.Conn) bool {
					p.OnReply(nil)
					granted <- struct{}{}
					return true
				})
				arrived <- struct{}{}
				<-hold
			}
			return true
		})
		through = append(through, "redis://"+p.Addr)
	}
	s := newStore(t, through, time.Minute)
	t.Cleanup(resume) // before the Store is closed
	s.requestTimeout = timeout
	for _, client := range s.servers {
		client.Options().ReadTimeout = timeout
	}

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { _, err := s.TryAcquire(ctx, "k"); result <- err }()
	for range five {
		<-arrived
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want Canceled and an unknown outcome", err)
	}
	other := sibling(t, shared, time.Minute, s.prefix)
	wantOwners(t, other, make([]string, five)) // a deletion that did not wait has arrived by now
	resume()
	for range five {
		<-granted
	}
	wantOwners(t, other, make([]string, five))
}
