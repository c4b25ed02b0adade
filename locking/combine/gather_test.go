// SPDX-License-Identifier: MIT

package combine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// A client that needs a moment before its next request is in a batch with the others, and the lease is kept.
func TestDo_ClientsThatComeBackShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			batches = append(batches, batch)
			return echo(8*time.Millisecond)(ctx, l, batch)
		}})
		var clients sync.WaitGroup
		for _, q := range []string{"a", "b"} {
			clients.Go(func() {
				for range 3 {
					if _, err := c.Do(t.Context(), q, "k"); err != nil {
						t.Error(err)
					}
					if q == "b" {
						time.Sleep(900 * time.Microsecond)
					}
				}
			})
			synctest.Wait()
		}
		clients.Wait()
		if want := "[[a] [b a] [a b] [b]]"; fmt.Sprint(batches) != want || store.grants != 1 {
			t.Errorf("%v under %d leases, want %s under 1", batches, store.grants, want)
		}
	})
}

// A client that does not come back delays the others by no more than the least of three bounds.
func TestDo_TheWaitForTheClientsOfTheLastBatchIsBounded(t *testing.T) {
	for name, bound := range map[string]struct {
		gather, turn, batch, want time.Duration
	}{
		"an eighth of the last batch": {time.Second, 30 * time.Second, 8 * time.Millisecond, time.Millisecond},
		"MaxGather":                   {500 * time.Microsecond, 30 * time.Second, 8 * time.Millisecond, 500 * time.Microsecond},
		"the rest of MaxTurn":         {time.Second, 17*time.Millisecond + 200*time.Microsecond, 8 * time.Millisecond, 200 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sizes []int
				var ended time.Time
				var waited time.Duration
				c := open(t, Config[string, string]{
					MaxGather: bound.gather, MaxTurn: bound.turn, Pause: time.Nanosecond,
					Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
						sizes, waited = append(sizes, len(batch)), time.Since(ended)
						defer func() { ended = time.Now() }()
						return echo(bound.batch)(ctx, l, batch)
					},
				})
				told := []<-chan outcome{ask(t.Context(), c, "first", "k"), ask(t.Context(), c, "a", "k"), ask(t.Context(), c, "b", "k")}
				for _, one := range told {
					<-one
				}
				<-ask(t.Context(), c, "a", "k")
				if want := "[1 2 1]"; fmt.Sprint(sizes) != want || waited-bound.want > time.Nanosecond || waited < bound.want {
					t.Errorf("batches of %v, the last after %v, want %s after %v", sizes, waited, want, bound.want)
				}
			})
		})
	}
}

// A turn ends when few requests are left of many, so that another process gets the lease before small batches.
func TestDo_FewRequestsWaitForAnotherTurn(t *testing.T) {
	for many, leases := range map[int]int{7: 1, 8: 2} {
		synctest.Test(t, func(t *testing.T) {
			var sizes []int
			store := &free{ttl: time.Minute}
			c := open(t, Config[string, string]{Store: store, MaxTurn: 30 * time.Second, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
				sizes = append(sizes, len(batch))
				return echo(8*time.Millisecond)(ctx, l, batch)
			}})
			told := []<-chan outcome{ask(t.Context(), c, "first", "k")}
			for n := range many {
				told = append(told, ask(t.Context(), c, fmt.Sprint(n), "k"))
			}
			<-told[0]
			time.Sleep(2 * time.Millisecond) // the batch of many has begun
			<-ask(t.Context(), c, "last", "k")
			if want := fmt.Sprint([]int{1, many, 1}); fmt.Sprint(sizes) != want || store.grants != leases {
				t.Errorf("batches of %v under %d leases, want %s under %d", sizes, store.grants, want, leases)
			}
		})
	}
}

// The clients of the last batch of a turn send their next requests at once. These wait for Pause before the lease is
// requested again, since another process was woken by the release. A client alone, whose turns are short, does not wait.
func TestDo_AFullTurnIsFollowedByAPause(t *testing.T) {
	const pause = 2 * time.Millisecond
	for turn, want := range map[time.Duration]time.Duration{8 * time.Millisecond: pause, 9 * time.Millisecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Time
			var waited time.Duration
			c := open(t, Config[string, string]{MaxTurn: turn, MaxGather: time.Nanosecond, Pause: pause, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
				waited = time.Since(ended)
				defer func() { ended = time.Now() }()
				return echo(8*time.Millisecond)(ctx, l, batch)
			}})
			<-ask(t.Context(), c, "first", "k")
			time.Sleep(time.Microsecond)
			<-ask(t.Context(), c, "next", "k")
			if late := waited - want; late < 0 || late > 2*time.Microsecond {
				t.Errorf("MaxTurn %v: the next batch began %v after the last one, want %v", turn, waited, want)
			}
		})
	}
}

// After a batch that took too long, the next is as small as it must be. It grows again when requests take less.
func TestDo_ABatchThatTakesTooLongMakesTheNextSmaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		each := time.Millisecond
		c := open(t, Config[string, string]{
			MaxBatch: 8, MaxBatchTime: 4 * time.Millisecond, MaxTurn: 10 * time.Second,
			Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
				if sizes = append(sizes, len(batch)); len(sizes) == 4 {
					each = 100 * time.Microsecond
				}
				return echo(time.Duration(len(batch))*each)(ctx, l, batch)
			},
		})
		var told []<-chan outcome
		for n := range 1 + 8 + 4 + 4 + 8 {
			told = append(told, ask(t.Context(), c, fmt.Sprint(n), "k"))
		}
		for n, o := range told {
			if got := <-o; got.answer != fmt.Sprint(n) || got.err != nil {
				t.Errorf("%d: %+v", n, got)
			}
		}
		if want := "[1 8 4 4 8]"; fmt.Sprint(sizes) != want {
			t.Errorf("batches of %v, want %s", sizes, want)
		}
	})
}
