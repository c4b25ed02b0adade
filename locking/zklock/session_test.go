// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// tick is that of the servers: ZooKeeper rounds the end of a session up to whole ticks.
const tick = time.Second

func sessionOf(s *opened) int64 {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	if s.session == nil {
		return 0
	}
	return s.session.id
}

// hold holds a key in a Do until stop is closed, or the lease is lost. ended receives the result of Do.
func hold(t *testing.T, s *opened, key string, stop <-chan struct{}) (held locking.Lease, ended <-chan error) {
	t.Helper()
	got, result := make(chan locking.Lease, 1), make(chan error, 1)
	go func() {
		result <- locking.Do(context.WithoutCancel(t.Context()), s, locking.Options{}, []string{key}, func(ctx context.Context, l locking.Lease) error {
			got <- l
			select {
			case <-stop:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	select {
	case held = <-got:
	case err := <-result:
		t.Fatal(err)
	}
	return held, result
}

// A Store is cut off until its session has expired. Its holder's work ends before another Store gets
// the key, its lease stays lost, and its waiter waits again, in the new session.
func TestSession_ExpiryLosesTheLeasesAndKeepsTheWaiters(t *testing.T) {
	t.Parallel()
	g := shared(t)
	other := g.must(t, time.Minute)
	store, p := g.viaProxy(t, minTTL)
	first, busy := sessionOf(store), locktest.Taken(t, other, "busy")
	waiter := acquireInBackground(t.Context(), store, "busy")
	awaitQueue(t, other, "busy", 2)
	held, ended := hold(t, store, "k", nil)
	p.Down()
	cut := time.Now()
	lost := make(chan time.Time, 1)
	go func() {
		if err := <-ended; !errors.Is(err, locking.ErrLost) {
			t.Errorf("the holder: got %v, want ErrLost", err)
		}
		lost <- time.Now()
	}()
	next, err := other.Acquire(t.Context(), "k")
	got := time.Now()
	if err != nil || next.Fence <= held.Fence {
		t.Fatalf("the next holder: %+v, %v after %+v", next, err, held)
	}
	if end := <-lost; end.After(got) {
		t.Errorf("the work ended %v after the next grant", end.Sub(got))
	}
	if took := got.Sub(cut); took > minTTL+tick+2*time.Second {
		t.Errorf("the key of the dead holder was free after %v", took)
	}

	p.Up(t)
	locktest.Eventually(t, "there is a new session", func() bool { now := sessionOf(store); return now != 0 && now != first })
	if _, err := store.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew in the new session: got %v, want ErrLost", err)
	}
	awaitQueue(t, other, "busy", 2)
	locktest.Released(t, other, busy)
	if got := <-waiter; got.error != nil {
		t.Errorf("the waiter: %v", got.error)
	}
}

// The member that serves the session stops answering, and its connection stays open. The session
// continues with another member before a lease is lost.
func TestSession_ContinuesWhenAMemberIsSilent(t *testing.T) {
	t.Parallel()
	g := shared(t)
	one, two := newProxy(t, g.servers[0]), newProxy(t, g.servers[0])
	g.servers = []string{one.Addr, two.Addr}
	store := g.must(t, 6*time.Second)
	stop, session, member := make(chan struct{}), sessionOf(store), store.conn.Server()
	_, ended := hold(t, store, "k", stop)
	if member == one.Addr {
		one.Freeze(t)
	} else {
		two.Freeze(t)
	}
	locktest.Eventually(t, "the session continues with the other member", func() bool {
		_, _, err := store.conn.Exists("/")
		return err == nil && store.conn.Server() != member
	})
	if sessionOf(store) != session {
		t.Error("the session is another one")
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Errorf("the holder: %v", err)
	}
}
