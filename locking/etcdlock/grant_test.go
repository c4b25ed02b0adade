package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// An attempt is first in its queues, but its session is dead, or no longer trusted: it
// must not be granted.
func TestGrant_NeedsALiveSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*session){
		"abandoned":     func(x *session) { x.die(errOrphans) },
		"trust is over": func(x *session) { x.store.mu.Lock(); x.until = time.Now(); x.store.mu.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := shared(t).must(t, 20*time.Second)
			x := store.session
			keys := []string{"k"}
			p, _ := store.queue.TryJoin(keys...)
			a := &attempt{session: x, ticket: p, keys: keys, nonce: store.nonce()}
			if err := a.enter(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			end(x)
			if l, granted := a.grant(); granted {
				t.Errorf("granted %+v", l)
			}
			p.Leave(keys...)
			locktest.Eventually(t, "the key is free, under a new session", func() bool {
				l, err := store.TryAcquire(t.Context(), "k")
				return err == nil && store.Release(t.Context(), l) == nil
			})
			if !errors.Is(context.Cause(x.life), locking.ErrLost) || id(store) == x.id {
				t.Errorf("session %x is %v", x.id, context.Cause(x.life))
			}
		})
	}
}
