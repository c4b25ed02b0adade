// SPDX-License-Identifier: MIT

package locktest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// silent is a store that grants all requests until their answers are lost. A request without an answer
// ends with its ctx, after half a second at the latest. The first ones are delayed, as by stalls of the
// machine.
type silent struct {
	useless
	lose, lost, stalls atomic.Int64
	stall              time.Duration
}

func (s *silent) request(ctx context.Context) (err error) {
	if s.lose.Load() == 0 {
		return nil
	}
	s.lost.Add(1)
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(500 * time.Millisecond):
		err = locking.ErrOutcomeUnknown
	}
	if s.stalls.Add(-1) >= 0 {
		<-time.After(s.stall)
	}
	return err
}

func (s *silent) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	if err := s.request(ctx); err != nil {
		return locking.Lease{}, err
	}
	return s.useless.TryAcquire(ctx, keys...)
}

func (s *silent) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	return l, s.request(ctx)
}

func (s *silent) Release(ctx context.Context, _ locking.Lease) error { return s.request(ctx) }

// stalled runs a check on a silent store with stalls, and returns its failure.
func stalled(t *testing.T, check string, stalls int64, stall time.Duration) string {
	t.Helper()
	s := &silent{stall: stall, useless: useless{lease: locking.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}}}
	s.stalls.Store(stalls)
	open := func(testing.TB) locktest.Backend {
		return locktest.Backend{
			Open: func(time.Duration) (locking.Store, error) { return s.useless, nil },
			Proxied: func(time.Duration) locktest.Proxied {
				return locktest.Proxied{
					Store: s,
					Lose:  func(n int) { s.lose.Store(int64(n)) },
					Lost:  func() int { return int(s.lost.Load()) },
				}
			},
		}
	}
	return locktest.Failing(t, open, locktest.Promises{Expires: true, MinTTL: time.Millisecond}, check)[check]
}

const returnsAtOnce = "Ctx/ReturnsAtOnceWithoutAnAnswer"

// A stall of the machine is no fault of the store.
func TestFailing_AllowsAStall(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	for _, check := range []string{returnsAtOnce, "Reply/NeverComes"} {
		if failure := stalled(t, check, 1, 2500*time.Millisecond); failure != "" {
			t.Errorf("%s: %s", check, failure)
		}
	}
}

// A store that is late each time is noticed.
func TestFailing_NoticesAStoreThatIsAlwaysLate(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	if stalled(t, returnsAtOnce, 1000, 1100*time.Millisecond) == "" {
		t.Errorf("%s passed", returnsAtOnce)
	}
}
