// SPDX-License-Identifier: MIT

package combine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// A batch with a request that makes Apply panic: the others are done, each alone, and it is told so.
func TestDo_OneBadRequestFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, Log: slog.New(slog.NewTextHandler(&log, nil)), Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			all, err := echo(time.Second)(ctx, l, batch)
			if slices.Contains(batch, "bad") {
				panic("bad request")
			}
			return all, err
		}})
		first := ask(t.Context(), c, "first", "k")
		bad, good := ask(t.Context(), c, "bad", "k"), ask(t.Context(), c, "good", "k")
		if got := <-bad; !errors.Is(got.err, ErrPanic) || !errors.Is(got.err, locking.ErrOutcomeUnknown) {
			t.Errorf("bad: %+v", got)
		}
		for name, o := range map[string]<-chan outcome{"first": first, "good": good} {
			if got := <-o; got.answer != name || got.err != nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if n := strings.Count(log.String(), "TestDo_OneBadRequestFailsAlone"); n < 3 {
			t.Errorf("three panics are logged with %d stacks: %s", n, &log)
		}
		if store.grants < 4 {
			t.Errorf("%d leases: want a new one after each panic", store.grants)
		}
	})
}

// A wrong number of results is a bug in Apply: it is told at once, with both numbers, and Apply is not called again.
func TestDo_AWrongNumberOfResultsIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, calls, start := &free{ttl: time.Minute}, 0, time.Now()
		c := open(t, Config[string, string]{Store: store, Apply: func(context.Context, locking.Lease, []string) ([]Result[string], error) {
			calls++
			return make([]Result[string], 2), nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := c.Do(ctx, "q", "k")
		if !errors.Is(err, ErrResults) || !errors.Is(err, locking.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "got 2 for 1") {
			t.Errorf("got %v, want ErrResults, which is ErrOutcomeUnknown", err)
		}
		if took := time.Since(start); calls != 1 || took > 0 {
			t.Errorf("told after %v and %d calls of Apply", took, calls)
		}
		if synctest.Wait(); store.released != 1 {
			t.Errorf("the lease was released %d times: Apply has ended", store.released)
		}
	})
}

// A client that holds one of the keys would wait for itself. So would Apply, if it called its Combiner.
func TestDo_UnderALeaseOfTheKeyIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Combiner[string, string]
		store := &free{ttl: time.Minute}
		c = open(t, Config[string, string]{Store: store, Apply: func(ctx context.Context, _ locking.Lease, batch []string) ([]Result[string], error) {
			if batch[0] == "inside" {
				_, err := c.Do(ctx, "again", "k")
				return []Result[string]{{Err: err}}, nil
			}
			return echo(0)(ctx, locking.Lease{}, batch)
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := c.Do(ctx, "inside", "k"); !errors.Is(err, locking.ErrNested) {
			t.Errorf("in Apply: got %v, want ErrNested", err)
		}
		err := locking.Do(ctx, store, locking.Options{}, []string{"a", "k"}, func(ctx context.Context, _ locking.Lease) error {
			_, err := c.Do(ctx, "q", "k")
			return err
		})
		if !errors.Is(err, locking.ErrNested) {
			t.Errorf("under a lease: got %v, want ErrNested", err)
		}
	})
}

// What may have been done in one try stays unknown, although the later ones did nothing.
func TestDo_UnknownStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unanswered := true
		c := open(t, Config[string, string]{Apply: func(context.Context, locking.Lease, []string) ([]Result[string], error) {
			if unanswered {
				unanswered = false
				return nil, locking.ErrOutcomeUnknown
			}
			return []Result[string]{{Err: errors.New("read-only")}}, nil
		}})
		if _, err := c.Do(t.Context(), "q", "k"); !errors.Is(err, locking.ErrOutcomeUnknown) || unanswered {
			t.Errorf("then an error of the request: got %v, want ErrOutcomeUnknown", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		fates := []error{locking.ErrOutcomeUnknown, locking.ErrLost, errors.New("deadlock detected")}
		c := open(t, Config[string, string]{Apply: func(context.Context, locking.Lease, []string) ([]Result[string], error) {
			fate := fates[0]
			fates = fates[1:]
			return nil, fate
		}})
		if _, err := c.Do(t.Context(), "q", "k"); !errors.Is(err, locking.ErrOutcomeUnknown) || len(fates) > 0 {
			t.Errorf("got %v with %d tries left, want ErrOutcomeUnknown", err, len(fates))
		}
	})
}

// Apply may end its goroutine, as t.FailNow does.
func TestDo_ApplyThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config[string, string]{Apply: func(context.Context, locking.Lease, []string) ([]Result[string], error) {
			runtime.Goexit()
			return nil, nil
		}})
		if _, err := c.Do(t.Context(), "q", "k"); !errors.Is(err, ErrPanic) {
			t.Errorf("got %v, want ErrPanic", err)
		}
	})
}

// A lease that is lost in the middle is told as that, and not as a client that has left.
func TestDo_ALostLeaseIsNoClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: 3 * time.Second}
		c := open(t, Config[string, string]{Store: store, Tries: 1, Apply: func(ctx context.Context, _ locking.Lease, _ []string) ([]Result[string], error) {
			<-ctx.Done()
			return nil, fmt.Errorf("query: %w", ctx.Err())
		}})
		store.lost = true
		if _, err := c.Do(t.Context(), "q", "k"); !errors.Is(err, locking.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

func TestHalved_NothingRunsUnderALeaseInDoubt(t *testing.T) {
	full := errors.New("disk full")
	for name, c := range map[string]struct {
		fates [2]error
		calls int
		want  error
		each  [2]error
	}{
		"both done":             {[2]error{}, 2, nil, [2]error{}},
		"the first is unknown":  {[2]error{locking.ErrOutcomeUnknown}, 1, locking.ErrOutcomeUnknown, [2]error{}},
		"the first fails":       {[2]error{full}, 1, full, [2]error{}},
		"the second fails":      {[2]error{nil, full}, 2, nil, [2]error{nil, full}},
		"the second is unknown": {[2]error{nil, locking.ErrOutcomeUnknown}, 2, locking.ErrOutcomeUnknown, [2]error{}},
		"the lease is lost":     {[2]error{nil, locking.ErrLost}, 2, locking.ErrOutcomeUnknown, [2]error{}},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			combiner := open(t, Config[string, string]{Apply: func(_ context.Context, _ locking.Lease, part []string) ([]Result[string], error) {
				if len(part) == 2 {
					return nil, OfOne(full)
				}
				calls++
				return []Result[string]{{Answer: part[0]}}, c.fates[calls-1]
			}})
			results, err := (&turns[string, string]{Combiner: combiner}).halved(t.Context(), locking.Lease{}, []*request[string, string]{{of: "a"}, {of: "b"}})
			if calls != c.calls || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("%d calls, %v; want %d, %v", calls, err, c.calls, c.want)
			}
			if err == nil && (len(results) != 2 || results[0].Err != c.each[0] || results[1].Err != c.each[1]) {
				t.Errorf("%+v, want the errors %v", results, c.each)
			}
		})
	}
}

// A half begins only with enough trust. It had no effect then, and the results of the other half stand.
func TestHalved_EachHalfNeedsTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: 2 * time.Second}
		var applied []string
		c := open(t, Config[string, string]{Store: store, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			if len(batch) == 2 {
				return nil, OfOne(errors.New("bad request"))
			}
			applied = append(applied, batch...)
			if batch[0] == "a" {
				store.fail(errors.New("connection refused"))
				defer store.fail(nil)
				time.Sleep(1500 * time.Millisecond)
			}
			return echo(time.Millisecond)(ctx, l, batch)
		}})
		first, a, b := ask(t.Context(), c, "first", "k"), ask(t.Context(), c, "a", "k"), ask(t.Context(), c, "b", "k")
		<-first
		if got := <-a; got.answer != "a" || got.err != nil {
			t.Errorf("a: %+v", got)
		}
		if got := <-b; !errors.Is(got.err, locking.ErrLost) || errors.Is(got.err, locking.ErrOutcomeUnknown) {
			t.Errorf("b: %+v, want ErrLost", got)
		}
		if want := "[first a]"; fmt.Sprint(applied) != want {
			t.Errorf("applied %v, want %s", applied, want)
		}
	})
}

// Nothing else runs under a lease after an unknown outcome. It is released only if Apply is guarded.
func TestDo_AnUnknownOutcomeGivesUpTheLease(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &releases{free: free{ttl: time.Minute}}
			var fences []locking.Fence
			c := open(t, Config[string, string]{Store: store, Guarded: guarded, Apply: func(_ context.Context, l locking.Lease, _ []string) ([]Result[string], error) {
				if fences = append(fences, l.Fence); len(fences) == 1 {
					return nil, locking.ErrOutcomeUnknown
				}
				return []Result[string]{{Answer: "a"}}, nil
			}})
			if answer, err := c.Do(t.Context(), "q", "k"); answer != "a" || err != nil {
				t.Errorf("%q, %v", answer, err)
			}
			c.Close()
			if !slices.Equal(fences, []locking.Fence{1, 2}) || slices.Contains(store.released, 1) != guarded {
				t.Errorf("guarded %t: applied with fences %v, of which %v were released", guarded, fences, store.released)
			}
		})
	}
}

// releases is free with the fences of the leases that were released.
type releases struct {
	free
	released []locking.Fence
}

func (s *releases) Release(ctx context.Context, l locking.Lease) error {
	s.released = append(s.released, l.Fence)
	return s.free.Release(ctx, l)
}

// An Apply that returns a result too many for one half and one too few for the other shifts no answer.
func TestHalved_TheNumberOfResultsIsCheckedInEachHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config[string, string]{Tries: 1, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			all, err := echo(time.Second)(ctx, l, batch)
			switch fmt.Sprint(batch) {
			case "[a b c d]":
				return nil, OfOne(errors.New("duplicate key"))
			case "[a b]":
				return append(all, all...), nil
			case "[c d]":
				return nil, nil
			}
			return all, err
		}})
		told := []<-chan outcome{ask(t.Context(), c, "first", "k")}
		for _, q := range []string{"a", "b", "c", "d"} {
			told = append(told, ask(t.Context(), c, q, "k"))
		}
		if got := <-told[0]; got.err != nil {
			t.Error(got.err)
		}
		for _, o := range told[1:] {
			if got := <-o; !errors.Is(got.err, locking.ErrOutcomeUnknown) {
				t.Errorf("got %+v, want ErrOutcomeUnknown", got)
			}
		}
	})
}
