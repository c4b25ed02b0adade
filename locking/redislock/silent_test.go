// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// A request to a server that has stopped answering returns when ctx is cancelled,
// although the read of the socket lasts ten seconds.
func TestRenew_ReturnsWhenCancelledWhileTheServerIsSilent(t *testing.T) {
	const wait, ttl = 10 * time.Second, time.Minute
	p := redistest.Proxy(t, redistest.Host(t, redistest.URL(t)))
	o := Tune(&redis.UniversalOptions{Addrs: []string{p.Addr}}, ttl)
	o.ReadTimeout = wait
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	store := storeOf(t, client, ttl, Options{Prefix: redistest.Prefix(t, redistest.URL(t))})
	t.Cleanup(p.Cut) // before Close, which waits for the reader
	lease := locktest.Taken(t, store, "k")

	p.Lose(1 << 30)
	if _, err := store.Renew(t.Context(), lease); err == nil {
		t.Fatal("renewed without an answer")
	}
	ctx, cancel := context.WithTimeout(t.Context(), store.Limit()/2)
	defer cancel()
	asked := time.Now()
	_, err := store.Renew(ctx, lease)
	if took := time.Since(asked); !errors.Is(err, context.DeadlineExceeded) || took > wait/2 {
		t.Errorf("got %v after %v, want the end of ctx", err, took)
	}
	p.Lose(0)
	locktest.Eventually(t, "an answer ends the silence", func() bool {
		_, err := store.Renew(t.Context(), lease)
		return err == nil
	})
}

// The Store's own time-out must not look like the end of the caller's ctx.
func TestTryAcquire_SilenceIsNotTheCallersDeadline(t *testing.T) {
	store, p, _ := behindProxy(t, 3*time.Second)
	p.Lose(1 << 30)
	asked := time.Now()
	_, err := store.TryAcquire(t.Context(), "k")
	if !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an unknown outcome and no end of ctx", err)
	}
	if took := time.Since(asked); took < store.ttl/4 {
		t.Errorf("gave up after %v", took)
	}
}
