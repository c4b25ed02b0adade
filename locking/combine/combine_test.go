package combine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"shop/locking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// free is a lock service without other holders. err is its answer to acquire.
type free struct {
	mu     sync.Mutex
	grants int
	err    error
	ttl    time.Duration
	busy   time.Time // another holder has the keys until then
	lost   bool      // the next renewal finds the lease lost
}

// hold lets another holder take the keys when they are released.
func (s *free) hold(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = time.Now().Add(d)
}

func (s *free) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return locking.Lease{}, s.err
	}
	if time.Now().Before(s.busy) {
		return locking.Lease{}, locking.ErrBusy
	}
	s.grants++
	return locking.Lease{Keys: keys, Owner: fmt.Sprint(s.grants), Fence: locking.Fence(s.grants), Until: time.Now().Add(s.ttl)}, nil
}

func (s *free) Renew(_ context.Context, l locking.Lease) (locking.Lease, error) {
	if s.lost {
		return l, locking.ErrLost
	}
	l.Until = time.Now().Add(s.ttl)
	return l, nil
}

func (*free) Release(context.Context, locking.Lease) error { return nil }

// echo answers each request with itself, after d.
func echo(d time.Duration) func(context.Context, locking.Lease, []string) ([]Result[string], error) {
	return func(_ context.Context, _ locking.Lease, batch []string) (all []Result[string], err error) {
		<-time.After(d)
		for _, q := range batch {
			all = append(all, Result[string]{Answer: q})
		}
		return all, nil
	}
}

func open(t testing.TB, c Config[string, string]) *Combiner[string, string] {
	t.Helper()
	if c.Store == nil {
		c.Store = &free{ttl: time.Minute}
	}
	combiner, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(combiner.Close)
	return combiner
}

// outcome is what a client was told.
type outcome struct {
	answer string
	err    error
}

// ask sends a request in the background, and returns when it waits.
func ask(ctx context.Context, c *Combiner[string, string], q string, keys ...string) <-chan outcome {
	told := make(chan outcome, 1)
	go func() {
		answer, err := c.Do(ctx, q, keys...)
		told <- outcome{answer, err}
	}()
	synctest.Wait()
	return told
}

func TestDo_OneBatchForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, MaxBatch: 3, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			batches = append(batches, batch)
			return echo(10*time.Millisecond)(ctx, l, batch)
		}})
		var told []<-chan outcome
		for _, q := range []string{"a", "b", "c", "d", "e"} {
			told = append(told, ask(t.Context(), c, q, "k"))
		}
		for i, q := range []string{"a", "b", "c", "d", "e"} {
			if got := <-told[i]; got.answer != q || got.err != nil {
				t.Errorf("%s: %+v", q, got)
			}
		}
		if want := "[[a] [b c d] [e]]"; fmt.Sprint(batches) != want || store.grants != 1 {
			t.Errorf("%v under %d leases, want %s under 1", batches, store.grants, want)
		}
		time.Sleep(time.Second) // longer than MaxGather
		synctest.Wait()
		if len(c.lines) != 0 {
			t.Errorf("%d queues are left", len(c.lines))
		}
	})
}

func TestDo_EqualRequestsAreOneThatIsAnsweredTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := open(t, Config[string, string]{
			Key: func(q string) string { return q }, Merged: func(a string) string { return a + " again" },
			Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
				asked += len(batch)
				return echo(10*time.Millisecond)(ctx, l, batch)
			},
		})
		running := ask(t.Context(), c, "other", "k")
		first, second := ask(t.Context(), c, "q", "k"), ask(t.Context(), c, "q", "k")
		<-running
		if a, b := <-first, <-second; a.answer != "q" || b.answer != "q again" || asked != 2 {
			t.Errorf("%+v, %+v, %d requests in batches; want q, q again, 2", a, b, asked)
		}
	})
}

func TestDo_EachSetOfKeysHasItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen [][]string
		c := open(t, Config[string, string]{Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			seen = append(seen, l.Keys)
			return echo(0)(ctx, l, batch)
		}})
		for _, keys := range [][]string{{"a"}, {"b", "a"}, {"a", "b", "b"}} {
			if _, err := c.Do(t.Context(), "q", keys...); err != nil {
				t.Fatal(err)
			}
		}
		if want := "[[a] [a b] [a b]]"; fmt.Sprint(seen) != want {
			t.Errorf("%v, want %s", seen, want)
		}
	})
}

// After MaxTurn the lease is released, and taken anew for those that still wait.
func TestDo_ATurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, MaxBatch: 1, MaxTurn: 25 * time.Millisecond, Apply: echo(10 * time.Millisecond)})
		var told []<-chan outcome
		for range 6 {
			told = append(told, ask(t.Context(), c, "q", "k"))
		}
		for _, o := range told {
			<-o
		}
		if store.grants != 2 {
			t.Errorf("6 batches of 10 ms ran under %d leases, want 2: three each", store.grants)
		}
	})
}

// A batch begins only with enough trust, and a lease that never has enough is an error.
func TestDo_TheLeaseMustBeLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		c := open(t, Config[string, string]{Store: &free{ttl: time.Second}, Trust: 2 * time.Second, Apply: func(context.Context, locking.Lease, []string) ([]Result[string], error) {
			ran = true
			return nil, nil
		}})
		if _, err := c.Do(t.Context(), "q", "k"); err == nil || ran {
			t.Errorf("ran %t, error %v", ran, err)
		}
	})
}

func TestDo_WithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		store := &free{ttl: time.Minute, err: down}
		c := open(t, Config[string, string]{Store: store, Apply: echo(0)})
		if _, err := c.Do(t.Context(), "q", "k"); !errors.Is(err, down) || errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, want the store's error", err)
		}
		store.err = locking.ErrBusy
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := c.Do(ctx, "q", "k"); !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrBusy and the error of ctx", err)
		}
	})
}

func TestDo_AFullQueueIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config[string, string]{MaxQueue: 2, Apply: echo(time.Second)})
		told := []<-chan outcome{ask(t.Context(), c, "running", "k"), ask(t.Context(), c, "1", "k"), ask(t.Context(), c, "2", "k")}
		if got := <-ask(t.Context(), c, "3", "k"); !errors.Is(got.err, ErrFull) || !errors.Is(got.err, locking.ErrBusy) {
			t.Errorf("got %+v, want ErrFull", got)
		}
		if got := <-ask(t.Context(), c, "3", "other"); got.err != nil {
			t.Errorf("another key: %v", got.err)
		}
		for _, o := range told {
			if got := <-o; got.err != nil {
				t.Error(got.err)
			}
		}
	})
}

// A client that leaves the queue has no effect, and shifts no answer. One that leaves a batch waits for it.
func TestDo_AClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config[string, string]{Apply: echo(time.Second)})
		ctx, leave := context.WithCancel(t.Context())
		running, queued := ask(ctx, c, "running", "k"), ask(ctx, c, "queued", "k")
		behind := ask(t.Context(), c, "behind", "k")
		leave()
		if got := <-queued; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, locking.ErrBusy) {
			t.Errorf("queued: %+v", got)
		}
		if got := <-running; got.answer != "running" || got.err != nil {
			t.Errorf("running: %+v", got)
		}
		if got := <-behind; got.answer != "behind" || got.err != nil {
			t.Errorf("behind: %+v", got)
		}
	})
}

func TestDo_InvalidRequests(t *testing.T) {
	c := open(t, Config[string, string]{Apply: echo(0)})
	if _, err := c.Do(t.Context(), "q"); !errors.Is(err, locking.ErrKey) {
		t.Errorf("no keys: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.Do(ended, "q", "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended ctx: %v", err)
	}
}

// A batch with a request that makes Apply panic: the others are done, each alone, and it is told so.
func TestDo_OneBadRequestFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
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
		if store.grants < 4 {
			t.Errorf("%d leases: want a new one after each panic", store.grants)
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

// A client that leaves while its request waits to be tried again is told what is known, and the batch that
// is undecided is tried again as a whole.
func TestDo_AClientLeavesBetweenTwoTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		c := open(t, Config[string, string]{Store: &free{ttl: time.Minute}, MaxTurn: 10 * time.Second, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			batches = append(batches, batch)
			all, err := echo(time.Second)(ctx, l, batch)
			if len(batches) == 2 {
				err = locking.ErrOutcomeUnknown
			}
			return all, err
		}})
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
		defer leave()
		first := ask(t.Context(), c, "first", "k")
		left, stays, too := ask(ctx, c, "left", "k"), ask(t.Context(), c, "stays", "k"), ask(t.Context(), c, "too", "k")
		c.config.Store.(*free).hold(time.Minute) // the lease of the batch must expire
		if got := <-left; !errors.Is(got.err, locking.ErrOutcomeUnknown) || !errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("left: %+v", got)
		}
		for name, o := range map[string]<-chan outcome{"first": first, "stays": stays, "too": too} {
			if got := <-o; got.answer != name || got.err != nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if want := "[[first] [left stays too] [stays too]]"; fmt.Sprint(batches) != want {
			t.Errorf("%v, want %s", batches, want)
		}
	})
}

// When all clients have left, the goroutine stops to wait for the lease.
func TestDo_NoGoroutineWaitsForNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: time.Minute}
		store.hold(time.Hour)
		c := open(t, Config[string, string]{Store: store, Apply: echo(0)})
		ctx, leave := context.WithCancel(t.Context())
		one, two := ask(ctx, c, "1", "k"), ask(ctx, c, "2", "k")
		leave()
		<-one
		<-two
		synctest.Wait()
		if c.mu.Lock(); len(c.lines) != 0 {
			t.Errorf("%d queues for which no client waits", len(c.lines))
		}
		c.mu.Unlock()
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

func TestClose_AnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config[string, string]{Apply: echo(time.Second)})
		running, queued := ask(t.Context(), c, "running", "k"), ask(t.Context(), c, "queued", "k")
		c.Close()
		if got := <-running; got.answer != "running" || got.err != nil {
			t.Errorf("running: %+v", got)
		}
		if got := <-queued; !errors.Is(got.err, ErrClosed) {
			t.Errorf("queued: %+v", got)
		}
		if _, err := c.Do(t.Context(), "late", "k"); !errors.Is(err, ErrClosed) {
			t.Errorf("late: %v", err)
		}
	})
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]Config[string, string]{
		"no store": {Apply: echo(0)},
		"no apply": {Store: &free{}},
		"negative": {Store: &free{}, Apply: echo(0), MaxQueue: -1},
		"MaxHold":  {Store: &free{}, Apply: echo(0), Lock: locking.Options{MaxHold: time.Second}, MaxTurn: time.Second},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkDo_Alone compares a request that finds the queue empty with locking.Do.
func BenchmarkDo_Alone(b *testing.B) {
	store := &free{ttl: time.Minute}
	work := func(context.Context, locking.Lease) error { return nil }
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := locking.Do(b.Context(), store, locking.Options{}, []string{"k"}, work); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("combined", func(b *testing.B) {
		c := open(b, Config[string, string]{Store: store, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			return make([]Result[string], len(batch)), work(ctx, l)
		}})
		for b.Loop() {
			if _, err := c.Do(b.Context(), "q", "k"); err != nil {
				b.Fatal(err)
			}
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
			results, err := (&turns[string, string]{Combiner: combiner}).halved(t.Context(), locking.Lease{}, []string{"a", "b"})
			if calls != c.calls || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("%d calls, %v; want %d, %v", calls, err, c.calls, c.want)
			}
			if err == nil && (len(results) != 2 || results[0].Err != c.each[0] || results[1].Err != c.each[1]) {
				t.Errorf("%+v, want the errors %v", results, c.each)
			}
		})
	}
}
