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

// The lease of a batch that is unknown is not released. A client whose ctx ended while the batch ran does not wait for the
// next lease.
func TestDo_AClientLeavesABatchThatStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &free{ttl: time.Minute}
		c := open(t, Config[string, string]{Store: store, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			store.hold(time.Hour)
			all, _ := echo(time.Second)(ctx, l, batch)
			return all, locking.ErrOutcomeUnknown
		}})
		ctx, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		began := time.Now()
		_, err := c.Do(ctx, "q", "k")
		if took := time.Since(began); took != time.Second || !errors.Is(err, locking.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v, want ErrOutcomeUnknown and the error of ctx at the end of the batch, after 1s", took, err)
		}
		synctest.Wait()
		if n := c.Queued(); n != 0 {
			t.Errorf("%d requests still wait", n)
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
		if c.mu.Lock(); len(c.queues) != 0 {
			t.Errorf("%d queues for which no client waits", len(c.queues))
		}
		c.mu.Unlock()
	})
}

// gate is a Store that grants its first lease when it is opened.
type gate struct {
	*free
	asked, opened chan struct{}
}

func (g gate) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	select {
	case g.asked <- struct{}{}:
	default:
	}
	<-g.opened
	return g.free.TryAcquire(ctx, keys...)
}

// The lease is granted, and before the batch is taken its only client leaves and another comes: that one must not be
// applied on the ctx that the first has ended.
func TestDo_AClientComesWhenTheOnlyOneLeaves(t *testing.T) {
	g := gate{&free{ttl: time.Minute}, make(chan struct{}, 1), make(chan struct{})}
	c := open(t, Config[string, string]{Store: g, Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return echo(0)(ctx, l, batch)
	}})
	left, comes := &request[string, string]{of: "left", ctx: t.Context()}, &request[string, string]{of: "comes", ctx: t.Context(), done: make(chan Result[string], 1)}
	q, err := c.join(left, []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	<-g.asked
	c.mu.Lock()
	close(g.opened)
	time.Sleep(20 * time.Millisecond) // the lease is trusted, and the batch is about to be taken
	q.waiting = []*request[string, string]{comes}
	q.stop() // as leave does
	c.mu.Unlock()
	if got := <-comes.done; got.Err != nil || got.Answer != "comes" {
		t.Errorf("%+v", got)
	}
}

// The ctx of a batch has the values of its request's only if that is alone.
func TestDo_ABatchOfOneHasTheValuesOfItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type name struct{}
		var seen []string
		c := open(t, Config[string, string]{Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[string], error) {
			seen = append(seen, fmt.Sprintf("%d %v", Requests(ctx), ctx.Value(name{})))
			return echo(time.Second)(ctx, l, batch)
		}})
		var told []<-chan outcome
		for _, n := range []string{"a", "b", "c"} {
			told = append(told, ask(context.WithValue(t.Context(), name{}, n), c, n, "k"))
		}
		for _, one := range told {
			<-one
		}
		if want := "[1 a 2 <nil>]"; fmt.Sprint(seen) != want {
			t.Errorf("%v, want %s", seen, want)
		}
		if n := Requests(t.Context()); n != 0 {
			t.Errorf("a ctx without a batch: %d", n)
		}
	})
}

// The last client leaves after finish has seen its request, and before the lease is requested: nothing waits for the lease.
func TestBegin_DoesNotWaitForNoClient(t *testing.T) {
	c := open(t, Config[string, string]{Apply: echo(0)})
	for name, q := range map[string]*queue[string, string]{
		"all have left": {keys: []string{"k"}},
		"one waits":     {keys: []string{"k"}, waiting: []*request[string, string]{{}}},
	} {
		stopped := false
		(&turns[string, string]{Combiner: c, queue: q}).begin(func() { stopped = true })
		if stopped != q.empty() {
			t.Errorf("%s: the wait for the lease has ended: %v", name, stopped)
		}
	}
}
