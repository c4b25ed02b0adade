// SPDX-License-Identifier: MIT

package combine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"shop/locking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// free is a lock service without other holders. err is its answer.
type free struct {
	mu               sync.Mutex
	grants, released int

	err  error
	ttl  time.Duration
	busy time.Time // another holder has the keys until then
	lost bool      // the next renewal finds the lease lost
}

// hold lets another holder take the keys when they are released.
func (s *free) hold(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = time.Now().Add(d)
}

// fail sets err.
func (s *free) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return l, locking.ErrLost
	}
	if s.err != nil {
		return l, s.err
	}
	l.Until = time.Now().Add(s.ttl)
	return l, nil
}

func (s *free) Release(context.Context, locking.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released++
	return nil
}

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
	c.MaxBatchTime = cmp.Or(c.MaxBatchTime, time.Hour) // most tests have slow batches
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
		if len(c.queues) != 0 {
			t.Errorf("%d queues are left", len(c.queues))
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

// late is a lock service whose first grants are over when they arrive.
type late struct {
	*free
	grants int
}

func (s *late) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	l, err := s.free.TryAcquire(ctx, keys...)
	if s.free.grants <= s.grants {
		l.Until = time.Now()
	}
	return l, err
}

func TestDo_AGrantThatCameTooLateIsTriedAgain(t *testing.T) {
	for grants, want := range map[int]error{2: nil, 3: locking.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			store := &late{&free{ttl: time.Minute}, grants}
			c := open(t, Config[string, string]{Store: store, Tries: 3, Apply: echo(0)})
			if _, err := c.Do(t.Context(), "q", "k"); !errors.Is(err, want) || (err == nil) != (want == nil) || store.free.grants != 3 {
				t.Errorf("%d of %d grants were too late: %v, want %v", grants, store.free.grants, err, want)
			}
		})
	}
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

func TestClose_AnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config[string, string]{Apply: echo(time.Second)})
		running, queued := ask(t.Context(), c, "running", "k"), ask(t.Context(), c, "queued", "k")
		c.Close()
		if got := <-running; got.answer != "running" || got.err != nil {
			t.Errorf("running: %+v", got)
		}
		if got := <-queued; !errors.Is(got.err, ErrClosed) || !errors.Is(got.err, locking.ErrBusy) {
			t.Errorf("queued: %+v", got)
		}
		if _, err := c.Do(t.Context(), "late", "k"); !errors.Is(err, ErrClosed) {
			t.Errorf("late: %v", err)
		}
	})
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]Config[string, string]{
		"no store":   {Apply: echo(0)},
		"no apply":   {Store: &free{}},
		"negative":   {Store: &free{}, Apply: echo(0), MaxQueue: -1},
		"default":    {Store: &free{}, Apply: echo(0), Lock: locking.Options{MaxHold: 50 * time.Millisecond}},
		"MaxHold":    {Store: &free{}, Apply: echo(0), Lock: locking.Options{MaxHold: time.Second}, MaxTurn: time.Second},
		"no MaxHold": {Store: &free{}, Apply: echo(0), MaxTurn: time.Minute},
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
