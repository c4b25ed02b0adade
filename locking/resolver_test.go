package locking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// redislock and mongolock test the Resolver with the answers of real servers.

func newResolver(t *testing.T) *locking.Resolver {
	r := locking.NewResolver(12*time.Second, 2*time.Second)
	t.Cleanup(r.Close)
	return r
}

// A server that is back after seconds is asked again at once, however long the TTL is.
func TestResolver_PausesAtMostForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := locking.NewResolver(time.Minute, 250*time.Millisecond)
		defer r.Close()
		last, longest := time.Now(), time.Duration(0)
		back := last.Add(20 * time.Second)
		err := r.Acquire(t.Context(), func() error {
			longest, last = max(longest, time.Since(last)), time.Now()
			if last.Before(back) {
				return locking.ErrOutcomeUnknown
			}
			return nil
		}, func(context.Context) error { return nil })
		if err != nil || longest > 250*time.Millisecond {
			t.Errorf("%v; the longest pause was %v, want at most 250ms", err, longest)
		}
	})
}

func TestResolver_RetriesUntilTheServerAnswers(t *testing.T) {
	unknown := fmt.Errorf("%w: no answer", locking.ErrOutcomeUnknown)
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		answers []error
		want    error
		removed int
	}{
		"granted":                      {[]error{nil}, nil, 0},
		"busy":                         {[]error{locking.ErrBusy}, locking.ErrBusy, 0},
		"refused":                      {[]error{refused}, refused, 0},
		"unknown, then granted":        {[]error{unknown, unknown, nil}, nil, 0},
		"unknown, then busy":           {[]error{unknown, locking.ErrBusy}, locking.ErrBusy, 1}, // the request may still be under way
		"unknown, refused, granted":    {[]error{unknown, refused, nil}, nil, 0},
		"unknown for half the TTL":     {[]error{unknown}, locking.ErrOutcomeUnknown, 1},
		"unknown, then always refused": {[]error{unknown, refused}, locking.ErrOutcomeUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, begin, asked, removed := newResolver(t), time.Now(), 0, 0
				err := r.Acquire(t.Context(), func() error {
					asked++
					return c.answers[min(asked, len(c.answers))-1]
				}, func(context.Context) error { removed++; return nil })
				synctest.Wait()
				if !errors.Is(err, c.want) || removed != c.removed || time.Since(begin) > 6*time.Second {
					t.Errorf("%v, removed %d times, after %v; want %v, %d", err, removed, time.Since(begin), c.want, c.removed)
				}
			})
		})
	}
}

func TestResolver_EndOfCtxIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolver(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.Acquire(ctx, func() error { return locking.NoAnswer(ctx, context.DeadlineExceeded) }, func(context.Context) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
		}
		if err := locking.NoAnswer(t.Context(), context.DeadlineExceeded); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v matches DeadlineExceeded, although ctx has not ended", err)
		}
	})
}

// A request may be executed after a removal that was sent later: the second removes what it has taken.
func TestResolver_RemovesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := newResolver(t), time.Now()
		var removals []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		err := r.Acquire(ctx, func() error { cancel(); return locking.NoAnswer(ctx, nil) }, func(context.Context) error {
			removals = append(removals, time.Since(begin))
			return nil
		})
		if !errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrOutcomeUnknown", err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, 2 * time.Second}; !slices.Equal(removals, want) {
			t.Errorf("removals after %v, want %v", removals, want)
		}
	})
}

// Removals beyond the limit are left to the TTL: Abandon does not wait. A removal
// without an answer is retried for one TTL, and Close cancels it and waits for it.
func TestResolver_RemovalsAreBoundedAndCloseJoinsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin, ended := newResolver(t), time.Now(), make(chan struct{}, 1000)
		var first atomic.Int32
		silent := func(ctx context.Context) error {
			<-time.After(time.Second)
			if ctx.Err() != nil {
				ended <- struct{}{}
			}
			return locking.ErrOutcomeUnknown
		}
		r.Abandon(func(context.Context) error { first.Add(1); return locking.ErrOutcomeUnknown })
		time.Sleep(13 * time.Second)
		asked := first.Load()
		for range 200 {
			r.Abandon(silent)
		}
		if time.Since(begin) != 13*time.Second {
			t.Error("Abandon waits")
		}
		synctest.Wait()
		r.Close()
		if n := first.Load(); n != asked || asked < 4 || len(ended) != 64 {
			t.Errorf("%d requests, then %d; %d removals were under way, want 64", asked, n, len(ended))
		}
		if r.Go(func() {}) || !r.Closed() {
			t.Error("want Closed, and no goroutine from Go")
		}
	})
}
