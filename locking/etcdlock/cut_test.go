// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// A client that is cut off from etcd can still write to other servers. Its trust ends
// before another holder can get the key, without an answer from etcd.
func TestDo_ClientCutOffFromEtcdStopsBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	g := shared(t)
	far, proxy := g, servertest.NewProxy(t, g.endpoints[0])
	far.endpoints = []string{proxy.Addr}
	store, other := far.must(t, ttl), g.must(t, 20*time.Second)
	var first, second locking.Lease
	var stopped time.Time
	thaw := func() {}
	err := locking.Do(t.Context(), store, locking.Options{}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
		first = l
		thaw = proxy.Freeze(t)
		<-ctx.Done()
		stopped = time.Now()
		var err error
		if second, err = other.TryAcquire(t.Context(), "k"); err == nil && time.Now().Before(l.Until.Add(driver.DefaultMargin(ttl))) {
			t.Errorf("%+v was granted before %+v had expired", second, l)
		}
		if err != nil {
			second, err = other.Acquire(t.Context(), "k")
		}
		return errors.Join(err, context.Cause(ctx))
	})
	if !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if second.Fence <= first.Fence || ranSince(stopped) > 2*ttl {
		t.Errorf("second %+v after first %+v; %v after it stopped", second, first, ranSince(stopped))
	}
	asked := time.Now()
	if _, err := store.TryAcquire(t.Context(), "other"); err == nil || errors.Is(err, locking.ErrBusy) || ranSince(asked) > ttl {
		t.Errorf("cut off: got %v after %v", err, ranSince(asked))
	}
	thaw()
	locktest.Eventually(t, "the Store grants again", func() bool {
		l, err := store.TryAcquire(t.Context(), "other")
		return err == nil && store.Release(t.Context(), l) == nil
	})
	locktest.WantHeld(t, store, "k")
	if err := store.Release(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release after all: got %v, want ErrLost", err)
	}
	locktest.Released(t, other, second)
}

// While etcd is unavailable, requests fail, at once after the first, and never with
// ErrBusy. When etcd is available again, the Store works without further action.
func TestAcquire_RequestsFailAtOnceUntilEtcdIsBack(t *testing.T) {
	t.Parallel()
	g := shared(t)
	far, proxy := g, servertest.NewProxy(t, g.endpoints[0])
	far.endpoints = []string{proxy.Addr}
	store := far.must(t, minTTL)
	proxy.Down()
	_, _ = store.Acquire(t.Context(), "k") // repeated for half the TTL, since its request may have been sent
	for range 20 {
		asked := time.Now()
		_, err := store.Acquire(t.Context(), "k")
		if took := ranSince(asked); err == nil || errors.Is(err, locking.ErrBusy) || took > time.Second {
			t.Errorf("got %v after %v", err, took)
		}
	}
	proxy.Up(t)
	locktest.Eventually(t, "the Store grants again", func() bool {
		l, err := store.TryAcquire(t.Context(), "k")
		return err == nil && store.Release(t.Context(), l) == nil
	})
}
