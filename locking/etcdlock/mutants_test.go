// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/locktest/faulty"
)

type mutant struct {
	broken func(*Store) locking.Store
	caught []string
}

func mutants() map[string]mutant {
	own, grows := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Fence/GrowsOverGrants"
	return map[string]mutant{
		"T1: the lease id as fence": {leaseIDs, []string{grows}},
		"T4: a session is shared":   {sharedSession, []string{"Exclusion/GoroutinesShareOneStore"}},
		"releases the whole queue":  {releasesTheQueue, []string{own}},
		"trusts from the answer":    {func(s *Store) locking.Store { return faulty.TrustsFromTheAnswer(s, s.locks.ttl+time.Millisecond) }, []string{"Until/NeverBeyondRequestPlusTTL"}},
		"trusts the wall clock":     {anyStore(faulty.TrustsTheWallClock), []string{"Expires/FreesTheKeysAfterUntil"}},
		"ignores ctx":               {anyStore(faulty.Deaf), []string{"Ctx/EndedBeforehandTakesNothing", "Ctx/ReturnsAtOnceWithoutAnAnswer"}},
		"several keys one by one":   {anyStore(faulty.TakesOneByOne), []string{"Multi/AllOrNone"}},
		"silence taken as refusal":  {anyStore(faulty.Guesses), []string{"Reply/NeverComes"}},
		"abandons its waiters":      {abandons, []string{"Ctx/ReturnsAtOnceWhileWaiting"}},
	}
}

// abandons leaves its waiter in the queue when ctx ends.
func abandons(s *Store) locking.Store {
	return faulty.TwistedWaiter{Twisted: faulty.Twisted{Store: s}, Wait: func(ctx context.Context, keys []string) (locking.Lease, error) {
		type result struct {
			locking.Lease
			error
		}
		got := make(chan result, 1)
		go func() { // until Close of the Store
			l, err := s.Acquire(context.WithoutCancel(ctx), keys...)
			got <- result{l, err}
		}()
		select {
		case r := <-got:
			return r.Lease, r.error
		case <-ctx.Done():
			return locking.Lease{}, ctx.Err()
		}
	}}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	for name, m := range mutants() {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			locktest.WantFailing(t, target{endpoints: endpoints(t), broken: m.broken}.open, promises, m.caught...)
		})
	}
}
