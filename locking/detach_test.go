// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// under runs fn in Do on the fake clock.
func (s *script) under(t *testing.T, fn func(ctx context.Context) error) error {
	t.Helper()
	return s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error { return fn(ctx) }).err
}

func TestDetach_NeitherClientNorLossCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		s := &script{renew: first(failing(0, 1, errGone), silent)}
		err := locking.Do(client, s, locking.Options{}, []string{"a"}, func(ctx context.Context, _ locking.Lease) error {
			detached, cancel, err := locking.Detach(ctx, 4*time.Second)
			if err != nil {
				return err
			}
			defer cancel()
			time.Sleep(3 * time.Second) // the client leaves at 1 s, the lease is lost at 2 s
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || detached.Err() != nil {
				t.Errorf("ctx %v, detached %v", context.Cause(ctx), detached.Err())
			}
			return detached.Err()
		})
		if err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestDetach_EndsAfterItsLimitAndWithTheTrust(t *testing.T) {
	for _, c := range []struct{ begin, limit, want time.Duration }{
		{0, time.Second, time.Second},
		{0, time.Minute, 6 * time.Second},
		{3 * time.Second, time.Minute, 8 * time.Second}, // renewed at 2 s
	} {
		s := &script{}
		err := s.under(t, func(ctx context.Context) error {
			time.Sleep(c.begin)
			detached, cancel, err := locking.Detach(ctx, c.limit)
			if err != nil {
				return err
			}
			defer cancel()
			<-detached.Done()
			if s.lasted() != c.want {
				t.Errorf("begun at %v, limit %v: ended at %v, want %v", c.begin, c.limit, s.lasted(), c.want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("got %v", err)
		}
	}
}

// An operation that is abandoned before its write has no effect.
func TestDetach_BeginsNoWriteWithoutTrust(t *testing.T) {
	begin := func(ctx context.Context) error {
		err := locking.Commit(ctx, time.Second, func(context.Context) error {
			t.Error("the write was begun")
			return nil
		})
		if errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, but nothing was sent", err)
		}
		return err
	}
	if err := refused().under(t, func(ctx context.Context) error { <-ctx.Done(); return begin(ctx) }); !errors.Is(err, locking.ErrLost) || errors.Is(err, context.Canceled) {
		t.Errorf("lost lease: got %v, want ErrLost and not Canceled: the caller is still there", err)
	}
	if err := refused().under(t, func(ctx context.Context) error { <-ctx.Done(); return begin(context.WithoutCancel(ctx)) }); !errors.Is(err, locking.ErrLost) {
		t.Errorf("lost lease, ctx detached from it: got %v, want ErrLost", err)
	}
	shutdown := errors.New("shutdown")
	err := (&script{}).under(t, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(shutdown)
		return begin(ctx)
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, shutdown) {
		t.Errorf("client gone: got %v, want Canceled and its cause", err)
	}
}

func TestDetach_IsBoundByTheEarliestOfSeveralHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		short := &script{until: func(sent time.Time) time.Time { return sent.Add(3 * time.Second) }, renew: silent}
		long := &script{}
		for name, stores := range map[string][2]*script{"outer": {short, long}, "inner": {long, short}} {
			err := locking.Do(t.Context(), stores[0], locking.Options{}, one, func(ctx context.Context, _ locking.Lease) error {
				return locking.Do(ctx, stores[1], locking.Options{}, one, func(ctx context.Context, _ locking.Lease) error {
					if until, held := locking.Trust(ctx); !held || until.Sub(start) != 3*time.Second {
						t.Errorf("%s is the short one: trust for %v", name, until.Sub(start))
					}
					return nil
				})
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDetach_WithoutALockIsBoundByTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if until, held := locking.Trust(t.Context()); held {
			t.Errorf("trust until %v in a ctx that is not of Do", until)
		}
		begin := time.Now()
		detached, cancel, err := locking.Detach(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		if <-detached.Done(); time.Since(begin) != time.Minute {
			t.Errorf("ended after %v", time.Since(begin))
		}
	})
}

func TestTrust_EndsWithDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leaked context.Context
		_ = locking.Do(t.Context(), &script{}, locking.Options{}, one, func(ctx context.Context, _ locking.Lease) error {
			leaked = ctx
			return nil
		})
		if leaked.Err() == nil {
			t.Error("fn's ctx has not ended: a goroutine that fn left behind would never learn that the lock is released")
		}
		if _, _, err := locking.Detach(context.WithoutCancel(leaked), time.Second); !errors.Is(err, locking.ErrLost) {
			t.Errorf("got %v: a write may begin under a lease that was released", err)
		}
	})
}
