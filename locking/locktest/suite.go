// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"shop/locking"
)

// deadline bounds what must happen eventually, on a busy machine; atOnce bounds what
// must not wait for anything.
const (
	deadline = 20 * time.Second
	atOnce   = time.Second
)

// key is the lock of most checks. Each check has a key space of its own.
const key = "account/42"

// suite is one check under way.
type suite struct {
	testing.TB
	Backend
	Promises
}

// messageMax is the longest message of a failure, in bytes: a store's errors may repeat its keys.
const messageMax = 800

// Errorf fails the test. The message is cut after messageMax.
func (s *suite) Errorf(format string, args ...any) {
	s.Helper()
	s.Error(cut(fmt.Sprintf(format, args...)))
}

// Fatalf ends the test. The message is cut after messageMax.
func (s *suite) Fatalf(format string, args ...any) {
	s.Helper()
	s.Fatal(cut(fmt.Sprintf(format, args...)))
}

func cut(message string) string {
	if len(message) <= messageMax {
		return message
	}
	return strings.ToValidUTF8(message[:messageMax*3/4], "") + " … " + strings.ToValidUTF8(message[len(message)-messageMax/4:], "")
}

// ttl returns a TTL of about d that the store can represent.
func (s *suite) ttl(d time.Duration) time.Duration {
	if s.MinTTL <= 0 {
		return d
	}
	return (d + s.MinTTL - 1) / s.MinTTL * s.MinTTL
}

// short is short enough to wait for its end, and long too long to expire by accident.
func (s *suite) short() time.Duration { return s.ttl(800 * time.Millisecond) }
func (s *suite) long() time.Duration  { return s.ttl(30 * time.Second) }

// open makes a further Store.
func (s *suite) open(ttl time.Duration) locking.Store {
	s.Helper()
	store, err := s.Open(ttl)
	if err != nil {
		s.Fatalf("open a store with TTL %v: %v", ttl, err)
	}
	return store
}

// proxied makes a Store whose answers can be lost, and returns its TTL. It makes a first exchange, so that a
// lost answer is one to a request, not to the connection's handshake. On a machine so busy that no
// request is answered in the share of the TTL that the store waits for, the TTL is doubled.
func (s *suite) proxied(ttl time.Duration) (Proxied, time.Duration) {
	s.Helper()
	for ; ; ttl *= 2 {
		w := s.Proxied(ttl)
		lease, err := acquire(s.within(ttl+4*time.Second), w.Store, "warm-up")
		if err == nil {
			s.release(w.Store, lease)
			return w, ttl
		}
		if ttl > deadline {
			s.Fatalf("acquire a free key with a TTL of %v: %v", ttl, err)
		}
	}
}

func (s *suite) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	s.Cleanup(cancel)
	return ctx
}

// lost checks that both Renew and Release return ErrLost for l.
func (s *suite) lost(store locking.Store, l locking.Lease) {
	s.Helper()
	ctx := s.within(deadline)
	for verb, request := range map[string]func() error{
		"renew":   func() error { _, err := store.Renew(ctx, l); return err },
		"release": func() error { return store.Release(ctx, l) },
	} {
		if err := Insist(ctx, func(bool) error { return request() }); !errors.Is(err, locking.ErrLost) {
			s.Errorf("%s a lost lease: got %v, want ErrLost", verb, err)
		}
	}
}

// inspect checks what must hold for every lease.
func (s *suite) inspect(l locking.Lease, keys []string) {
	s.Helper()
	if len(l.Keys) != len(keys) || l.Owner == "" {
		s.Errorf("lease %+v does not name its %d keys and its owner", l, len(keys))
	}
	if s.Expires == l.Until.IsZero() {
		s.Errorf("Until is %v, while Expires is promised: %t", l.Until, s.Expires)
	}
	if s.Expires && !strings.Contains(l.Until.String(), " m=") {
		s.Errorf("Until %v is not monotonic: a change of the wall clock would move it", l.Until)
	}
	if s.Fences != (l.Fence > 0) {
		s.Errorf("Fence is %d, while Fences is promised: %t", l.Fence, s.Fences)
	}
}

// eventually polls until ok returns true.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := s.within(deadline); !ok(); {
		select {
		case <-tick.C:
		case <-end.Done():
			s.Fatalf("%s: not within %v", what, deadline)
		}
	}
}
