// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
)

// T18: a client that retries its own request finds the key held by its own lock. The
// Store recognizes its own lease, which keeps its fence.
func TestTryAcquire_LostAnswerIsNotBusy(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		reset    bool
		settings string
	}{
		"silence":                         {false, ""},
		"connection reset":                {true, ""},
		"connection reset, without retry": {true, "&retryWrites=false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, p, other := disturbed(t, 9*time.Second, try.settings)
			p.Reset(try.reset)
			p.Lose(1)
			asked := time.Now()
			lease := locktest.Taken(t, store, "k")
			if p.Lost() != 1 || lease.Fence != 1 {
				t.Errorf("%d answers were lost, granted %+v; want 1, and the first grant", p.Lost(), lease)
			}
			if !try.reset && lease.Until.Sub(asked) < store.ttl-driver.DefaultMargin(store.ttl)+store.Limit() {
				t.Error("Until counts from the first request, but the second one set the TTL")
			}
			if end := *stateOf(t, other, "k").Expires; end.Before(lease.Until) { // one machine, one clock
				t.Errorf("Until is %v after the expiry at the server", lease.Until.Sub(end))
			}
			locktest.WantHeld(t, other, "k")
			if err := store.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
			locktest.Taken(t, other, "k")
		})
	}
}

// T19: a request returns at its deadline while the server does not answer, and the key
// that it may have taken is freed long before the TTL.
func TestTryAcquire_ReturnsAtTheDeadlineWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	store, p, other := disturbed(t, 30*time.Second)
	p.Lose(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	asked := time.Now()
	_, err := store.TryAcquire(ctx, "k")
	if took := time.Since(asked); took > 2*time.Second {
		t.Errorf("returned after %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
	}
	p.Lose(0)
	locktest.Eventually(t, "the key that the request took is free", func() bool {
		_, err := other.TryAcquire(t.Context(), "k")
		return err == nil
	})
	if took := time.Since(asked); took > store.ttl/2 {
		t.Errorf("free after %v", took)
	}
}

// The driver has timers of its own for the deadline of ctx, which may fire first. The
// error matches ctx.Err() all the same.
func TestRenew_AtTheDeadlineReturnsTheErrorOfCtx(t *testing.T) {
	t.Parallel()
	store, p, _ := disturbed(t, 30*time.Second)
	lease := locktest.Taken(t, store, "k")
	p.Lose(1 << 30)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := store.Renew(ctx, lease)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrLost) {
			t.Errorf("got %v with %v, want the deadline", err, ctx.Err())
		}
		cancel()
	}
}

// The Store's own time-out must not look like the end of the caller's ctx.
func TestTryAcquire_SilenceIsNotTheCallersDeadline(t *testing.T) {
	t.Parallel()
	store, p, _ := disturbed(t, 3*time.Second)
	p.Lose(1 << 30)
	asked := time.Now()
	_, err := store.TryAcquire(t.Context(), "k")
	if !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an unknown outcome and no end of ctx", err)
	}
	// Each request waits for a sixth of the TTL, and the removal is a request too.
	took, sent := time.Since(asked), p.Lost()
	if most := 2 + int(took/store.Limit()); took < store.ttl/4 || sent > most {
		t.Errorf("gave up after %v and %d requests, want half the TTL", took, sent)
	}
}

// A release that never arrived is retried in the background: the next holder does not
// wait for the TTL.
func TestRelease_LostRequestIsRetried(t *testing.T) {
	t.Parallel()
	store, p, other := disturbed(t, 12*time.Second)
	lease := locktest.Taken(t, store, "k")
	p.Drop(1)
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
	locktest.Eventually(t, "the key is free", func() bool {
		_, err := other.TryAcquire(t.Context(), "k")
		return err == nil
	})
	if !time.Now().Before(lease.Until) {
		t.Error("free only after the TTL")
	}
}
