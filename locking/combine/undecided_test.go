// SPDX-License-Identifier: MIT

package combine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// A request joins while another waits for the lease. When that wait is over, the first is refused, and not the second.
func TestDo_ARequestWaitsForTheLeaseAsLongAsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: time.Minute}
		store.hold(1500 * time.Millisecond)
		c := open(t, Config[string, string]{Store: store, Lock: locking.Options{MaxWait: time.Second}, Apply: echo(0)})
		first := ask(t.Context(), c, "first", "k")
		time.Sleep(900 * time.Millisecond)
		second := ask(t.Context(), c, "second", "k")
		if got := <-first; !errors.Is(got.err, ErrNoLease) || !errors.Is(got.err, locking.ErrBusy) {
			t.Errorf("first: %+v, want ErrNoLease and ErrBusy", got)
		}
		if got := <-second; got.answer != "second" || got.err != nil {
			t.Errorf("second: %+v", got)
		}
	})
}

// A batch without an answer is tried again before the requests that came later, without them, and waits for its lease as
// long as it takes: the old lease may have to expire.
func TestDo_AnUndecidedRequestComesFirstAndWaitsAsLongAsItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, Lock: locking.Options{MaxWait: time.Second}, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			batches = append(batches, batch)
			all, err := echo(time.Second)(ctx, l, batch)
			if len(batches) == 1 {
				store.hold(10 * time.Second)
				err = locking.ErrOutcomeUnknown
			}
			return all, err
		}})
		first, later := ask(t.Context(), c, "first", "k"), ask(t.Context(), c, "later", "k")
		for name, o := range map[string]<-chan outcome{"first": first, "later": later} {
			if got := <-o; got.answer != name || got.err != nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if want := "[[first] [first] [later]]"; fmt.Sprint(batches) != want {
			t.Errorf("%v, want %s", batches, want)
		}
	})
}

// After a batch that failed, its process does not overtake the one that the release has woken.
func TestDo_AFailedBatchIsFollowedByAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := open(t, Config[string, string]{Pause: time.Second, Guarded: true, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			if tries++; tries == 1 {
				return nil, locking.ErrOutcomeUnknown
			}
			return echo(0)(ctx, l, batch)
		}})
		start := time.Now()
		if _, err := c.Do(t.Context(), "q", "k"); err != nil || time.Since(start) < time.Second {
			t.Errorf("%v after %v and %d tries, want an answer after the pause", err, time.Since(start), tries)
		}
	})
}
