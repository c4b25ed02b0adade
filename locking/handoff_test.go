package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const noSession = 0

// waiters are requests for one key of a Handoff.
type waiters struct {
	t *testing.T
	h Handoff[int]

	mu       sync.Mutex
	atServer int      // requests that have arrived there
	grants   chan int // the server's
	order    []int    // the waiters that have the key, in the order of the grants
	sessions []int    // theirs
}

func newWaiters(t *testing.T) *waiters {
	return &waiters{t: t, h: Handoff[int]{Turn: time.Minute}, grants: make(chan int)}
}

// add adds waiters, one after the other.
func (w *waiters) add(numbers ...int) {
	w.t.Helper()
	for _, i := range numbers {
		go func() {
			session, err := w.h.Acquire(w.t.Context(), "k", w.take)
			if err != nil {
				w.t.Errorf("waiter %d: %v", i, err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.order, w.sessions = append(w.order, i), append(w.sessions, session)
		}()
		synctest.Wait()
	}
}

func (w *waiters) take() (int, error) {
	w.mu.Lock()
	w.atServer++
	w.mu.Unlock()
	return <-w.grants, nil
}

// pass passes a session on, if there is a waiter for it.
func (w *waiters) pass(session int) bool {
	defer synctest.Wait()
	return w.h.Wanted("k") && w.h.Pass("k", session)
}

// want compares what has happened since the last call.
func (w *waiters) want(what string, atServer int, order, sessions []int) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.atServer != atServer || !slices.Equal(w.order, order) || !slices.Equal(w.sessions, sessions) {
		w.t.Errorf("%s: %d requests at the server, granted to %v the sessions %v; want %d, %v, %v",
			what, w.atServer, w.order, w.sessions, atServer, order, sessions)
	}
	w.atServer, w.order, w.sessions = 0, nil, nil
}

// end releases the key at the server, and looks whether it is forgotten.
func (w *waiters) end() {
	w.t.Helper()
	w.h.Ending("k")
	if len(w.h.keys) != 0 {
		w.t.Errorf("%d keys are left", len(w.h.keys))
	}
}

func TestHandoff_PassesASessionInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.h.Granted("k")
		w.add(1, 2, 3)
		w.want("while the key is held", 0, nil, nil)
		for n := 1; n <= 3; n++ {
			if !w.pass(7) {
				t.Fatalf("release %d passes nothing on", n)
			}
			w.want("after a release", 0, []int{n}, []int{7})
		}
		if w.pass(7) {
			t.Error("a session was passed on without a waiter")
		}
		w.end()
	})
}

func TestHandoff_OnlyTheFirstWaitsAtTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.add(1, 2, 3)
		w.want("no session of the process has the key", 1, nil, nil)
		if w.pass(7) {
			t.Error("a session was passed to a waiter at the server")
		}
		w.grants <- 8
		w.want("the server grants", 0, []int{1}, []int{8})
		w.h.Ending("k") // released at the server: the next has to go there
		w.want("the session ends", 1, nil, nil)
		w.grants <- 9
		w.want("the server grants again", 0, []int{2}, []int{9})
		w.pass(9)
		w.want("a release", 0, []int{3}, []int{9})
		w.end()
	})
}

// Without an end of the turn a process with many waiters would keep the key.
func TestHandoff_ATurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.h.Granted("k")
		w.add(1, 2)
		time.Sleep(w.h.Turn - 1)
		w.pass(7)
		w.want("before the end", 0, []int{1}, []int{7})
		time.Sleep(time.Nanosecond)
		w.want("the end", 1, nil, nil)
		w.add(3)
		if w.pass(7) {
			t.Error("a session was passed on after the end of the turn")
		}
		w.h.Ending("k")
		w.grants <- 8
		w.want("the server grants", 0, []int{2}, []int{8})
		time.Sleep(w.h.Turn - 1)
		w.pass(8)
		w.want("a new turn", 0, []int{3}, []int{8})
		w.end()
	})
}

// The timer that ends a turn is set again for the next.
func TestHandoff_EachTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.h.Granted("k")
		for i := 1; i <= 3; i++ {
			w.add(i)
			w.want("during the turn", 0, nil, nil)
			time.Sleep(w.h.Turn)
			w.want("its end", 1, nil, nil)
			w.h.Ending("k")
			w.grants <- i
			w.want("the server grants", 0, []int{i}, []int{i})
		}
		w.end()
	})
}

// The waiter at the server was before the one in this process.
func TestHandoff_PassesNothingPastAWaiterAtTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.add(1, 2)
		w.want("before", 1, nil, nil)
		w.h.Granted("k") // a TryAcquire was faster
		if w.pass(7) {
			t.Error("the session was passed to the second waiter")
		}
		w.h.Ending("k")
		w.grants <- 8
		w.want("the server grants", 0, []int{1}, []int{8})
		w.pass(8)
		w.want("a release", 0, []int{2}, []int{8})
		w.end()
	})
}

// A waiter that comes after the turn does not wait for its end.
func TestHandoff_WaitsAtTheServerAtOnceAfterATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.h.Granted("k")
		time.Sleep(w.h.Turn)
		w.add(1)
		w.want("after the turn", 1, nil, nil)
		w.grants <- 7
		w.want("the server grants", 0, []int{1}, []int{7})
		w.end()
	})
}

func TestHandoff_AWaiterThatLeavesIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		w.h.Granted("k")
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := w.h.Acquire(ctx, "k", w.take)
			left <- err
		}()
		synctest.Wait()
		w.add(2)
		cancel()
		if err := <-left; !errors.Is(err, ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want ErrBusy and Canceled", err)
		}
		w.pass(7)
		w.want("a release", 0, []int{2}, []int{7})
		w.end()
	})
}

// The server refuses the first, as it does if its connection breaks: the next goes there.
func TestHandoff_AnErrorOfTheServerSendsTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(t)
		refuse := make(chan error)
		refused := make(chan error, 1)
		go func() {
			_, err := w.h.Acquire(t.Context(), "k", func() (int, error) { return noSession, <-refuse })
			refused <- err
		}()
		synctest.Wait()
		w.add(2)
		w.want("before", 0, nil, nil)
		refuse <- ErrOutcomeUnknown
		if err := <-refused; !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrOutcomeUnknown", err)
		}
		w.want("after", 1, nil, nil)
		w.grants <- 7
		w.want("the server grants", 0, []int{2}, []int{7})
		w.end()
	})
}

// A key that was never requested is not called busy, and one that was waited for is, wherever ctx ends.
func TestHandoff_BusyIsAKeyThatWasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, queued := range []bool{false, true} {
			w := newWaiters(t)
			refuse := make(chan error)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if queued {
				w.add(1)
			} else {
				cancel()
			}
			result := make(chan error, 1)
			go func() {
				_, err := w.h.Acquire(ctx, "k", func() (int, error) { return noSession, <-refuse })
				result <- err
			}()
			synctest.Wait()
			if queued {
				w.grants <- 7
				synctest.Wait() // the first has the key
				w.h.Ending("k")
				synctest.Wait() // the second has gone to the server
				cancel()
			}
			refuse <- ErrOutcomeUnknown
			err := <-result
			if !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrBusy) != queued || queued && !errors.Is(err, context.Canceled) {
				t.Errorf("it had waited: %t; got %v", queued, err)
			}
		}
	})
}

// A session that is passed to a waiter that leaves at the same moment is not lost.
func TestHandoff_NoSessionIsLost(t *testing.T) {
	for i := range 200 {
		now := i%2 == 0
		synctest.Test(t, func(t *testing.T) {
			h := Handoff[int]{Turn: time.Minute}
			h.Granted("k")
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan int, 1)
			go func() {
				session, _ := h.Acquire(ctx, "k", func() (int, error) { return noSession, ErrBusy })
				got <- session
			}()
			synctest.Wait()
			if now {
				cancel()
			} else {
				go cancel()
			}
			passed := h.Pass("k", 7)
			if session := <-got; passed != (session == 7) {
				t.Fatalf("passed: %t, and the waiter got session %d", passed, session)
			}
		})
	}
}
