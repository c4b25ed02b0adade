package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// A request to a server that has stopped answering returns when ctx is cancelled,
// although the read of the socket lasts ten seconds.
func TestRenew_ReturnsWhenCancelledWhileTheServerIsSilent(t *testing.T) {
	const wait, ttl = 10 * time.Second, time.Minute
	p := newProxy(t, hostOf(t, redisURL(t)))
	o := Tune(&redis.UniversalOptions{Addrs: []string{p.Addr}}, ttl)
	o.ReadTimeout = wait
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	store, err := New(client, ttl, Options{Prefix: newPrefix(t, redisURL(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	t.Cleanup(p.Cut) // before Close, which waits for the reader
	lease := locktest.Taken(t, store, "k")

	p.Lose(1 << 30)
	if _, err := store.Renew(t.Context(), lease); err == nil || !store.silent.Load() {
		t.Fatalf("got %v; the server is known to be silent: %t", err, store.silent.Load())
	}
	store.requestTimeout = wait
	ctx, cancel := context.WithCancel(t.Context())
	lost, result := p.Lost(), make(chan error, 1)
	go func() {
		_, err := store.Renew(ctx, lease)
		result <- err
	}()
	locktest.Eventually(t, "the answer is lost", func() bool { return p.Lost() > lost })
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	case <-time.After(wait / 2):
		t.Error("Renew did not return when ctx was cancelled")
		<-result
	}
	p.Lose(0)
	locktest.Eventually(t, "an answer ends the silence", func() bool {
		_, err := store.Renew(t.Context(), lease)
		return err == nil && !store.silent.Load()
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
