// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// An answer after the end of the trust is useless, so no attempt lasts longer than the
// trust. Nor does an attempt last so long that a lost packet costs all the trust.
func TestDo_AttemptIsBoundedByTheTrustThatIsLeft(t *testing.T) {
	s := &script{}
	var ends []time.Duration
	s.renew = func(ctx context.Context, _ int) error {
		end, _ := ctx.Deadline()
		ends = append(ends, end.Sub(s.start))
		return errDown
	}
	s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error { return work(ctx, time.Minute) })
	if want := seconds(4, 4.5, 5, 5.5, 6, 6, 6, 6); !slices.Equal(ends, want) {
		t.Errorf("attempts at %v end at %v, want %v", s.renewals, ends, want)
	}
}

// A holder that was paused, its keeper included, detects the loss when it continues.
func TestDo_PausedKeeperEndsTheTrustAndDoesNotRenew(t *testing.T) {
	s := &script{renew: failing(0, 1, errDown)}
	pause := func(e locking.Event) {
		if e.Kind == locking.RenewFailed {
			time.Sleep(10 * time.Second) // in the keeper's goroutine, after the first renewal
		}
	}
	p := s.play(t, locking.Options{Observer: pause}, func(ctx context.Context, _ locking.Lease) error {
		return work(ctx, time.Minute)
	})
	if !errors.Is(p.err, locking.ErrLost) || len(s.renewals) != 1 {
		t.Errorf("got %v after renewals at %v; want ErrLost, and none after the pause", p.err, s.renewals)
	}
}

func TestDo_GrantThatComesTooLateIsNotUsed(t *testing.T) {
	s := &script{acquire: deaf(7 * time.Second)}
	p := s.play(t, locking.Options{}, func(context.Context, locking.Lease) error {
		t.Error("fn ran on a lease that was over")
		return nil
	})
	if p.err != locking.ErrLost || len(s.releases) != 1 {
		t.Errorf("got %v, released %d times", p.err, len(s.releases))
	}
}

func TestDo_GrantAfterTheCallersCtxEndedIsNotUsed(t *testing.T) {
	s := &script{acquire: deaf(2 * time.Second)}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := locking.Do(ctx, s, locking.Options{}, one, func(context.Context, locking.Lease) error {
			t.Error("fn ran after the caller's ctx had ended")
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || len(s.releases) != 1 {
			t.Errorf("got %v, released %d times", err, len(s.releases))
		}
	})
}

// A renewal may extend the trust, never shorten it: the server keeps what it has granted.
func TestDo_RenewDoesNotShortenTrust(t *testing.T) {
	for name, until := range map[string]func(time.Time) time.Time{
		"earlier": func(sent time.Time) time.Time { return sent.Add(time.Millisecond) },
		"past":    func(sent time.Time) time.Time { return sent.Add(-time.Hour) },
		"zero":    func(time.Time) time.Time { return time.Time{} }, // nor does it make the trust endless
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			s.acquire = func(context.Context, int) error { s.until = nil; return nil }
			s.renew = func(context.Context, int) error { s.until = until; return nil }
			var stopped time.Duration
			p := s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error {
				defer func() { stopped = s.lasted() }()
				return work(ctx, time.Minute)
			})
			if !errors.Is(p.err, locking.ErrLost) || stopped != ttl {
				t.Errorf("trust ended at %v with %v, want at %v", stopped, p.err, ttl)
			}
			if len(s.renewals) > 10 {
				t.Errorf("renewed %d times in %v: a hot loop", len(s.renewals), ttl)
			}
		})
	}
}

// A store with a keep-alive of its own answers Renew without a request to its server.
func TestDo_RenewsMoreOftenWhileTheKeepAliveOfTheStoreIsBehind(t *testing.T) {
	s := &script{}
	begin := time.Time{}
	s.until = func(sent time.Time) time.Time { // the store's keep-alive: at 3 s, 6 s, …
		if begin.IsZero() {
			begin = sent
		}
		return begin.Add(sent.Sub(begin).Truncate(3 * time.Second)).Add(ttl)
	}
	p := s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error { return work(ctx, 7*time.Second) })
	if want := seconds(2, 2.5, 3, 5, 5.5, 6); p.err != nil || !slices.Equal(s.renewals, want) {
		t.Errorf("got %v; renewed at %v, want %v", p.err, s.renewals, want)
	}
}

// It runs on the real clock: the one of synctest has no monotonic reading.
func TestDo_TrustIsMonotonicEvenIfUntilIsNot(t *testing.T) {
	t.Parallel()
	s := &script{until: func(sent time.Time) time.Time { return sent.Add(6 * time.Second).Round(0) }}
	renewed := make(chan struct{}, 1)
	monotonic := func(ctx context.Context) {
		until, held := locking.Trust(ctx)
		if !held || !strings.Contains(fmt.Sprint(until), " m=") {
			t.Errorf("trust until %v: a change of the wall clock would move it", until)
		}
	}
	observe := func(e locking.Event) {
		if e.Kind == locking.Renewed {
			renewed <- struct{}{}
		}
	}
	err := locking.Do(t.Context(), s, locking.Options{Observer: observe}, one, func(ctx context.Context, _ locking.Lease) error {
		monotonic(ctx)
		select {
		case <-renewed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		monotonic(ctx)
		return nil
	})
	if err != nil {
		t.Errorf("got %v", err)
	}
}
