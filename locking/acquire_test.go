// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// steady has a Backoff without randomness: always the whole ceiling.
var steady = locking.Options{Backoff: locking.Backoff{Base: time.Second, Max: 4 * time.Second, Rand: func() float64 { return 1 }}}

// taken is a store in which another holder has the key for the first n attempts.
func taken(n int) *script { return &script{acquire: failing(0, n, locking.ErrBusy)} }

func TestAcquire_RetriesAfterTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taken(5)
		lease, err := locking.Acquire(t.Context(), s, steady, one...)
		if err != nil || lease.Owner != "owner-5" {
			t.Errorf("got %+v, %v", lease, err)
		}
		if want := seconds(0, 1, 3, 7, 11, 15); !slices.Equal(s.acquires, want) {
			t.Errorf("requests at %v, want %v", s.acquires, want)
		}
	})
}

func TestAcquire_ReturnsAtOnceWhenCtxEnds(t *testing.T) {
	shutdown := errors.New("shutdown")
	for name, end := range map[string]struct {
		with func(context.Context) (context.Context, context.CancelFunc)
		want []error
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 1500*time.Millisecond)
		}, []error{context.DeadlineExceeded}},
		"cancelled with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			timer := time.AfterFunc(1500*time.Millisecond, func() { cancel(shutdown) })
			return ctx, func() { timer.Stop() }
		}, []error{context.Canceled, shutdown}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taken(math.MaxInt)
				ctx, cancel := end.with(t.Context())
				defer cancel()
				_, err := locking.Acquire(ctx, s, steady, one...)
				for _, want := range append(end.want, locking.ErrBusy) {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v in it", err, want)
					}
				}
				if s.lasted() != 1500*time.Millisecond || len(s.acquires) != 2 {
					t.Errorf("returned after %v, requests at %v", s.lasted(), s.acquires)
				}
			})
		})
	}
}

func TestAcquire_InterruptedRequestIsBusyOnlyAfterABusyAnswer(t *testing.T) {
	cut := func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return fmt.Errorf("%w: no answer", locking.ErrOutcomeUnknown) // does not match ctx.Err()
	}
	for name, c := range map[string]struct {
		acquire func(context.Context, int) error
		busy    bool
	}{
		"after a busy answer": {first(failing(0, 1, locking.ErrBusy), cut), true},
		"the first":           {cut, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := locking.Acquire(ctx, &script{acquire: c.acquire}, steady, one...)
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrBusy) != c.busy {
					t.Errorf("got %v, want DeadlineExceeded, and ErrBusy: %t", err, c.busy)
				}
			})
		})
	}
}

// ErrOutcomeUnknown would mean that the caller's work may have happened. The work has not begun.
func TestAcquire_UnknownOutcomeOfTheLockIsNotThatOfTheWork(t *testing.T) {
	failure := fmt.Errorf("redis: %w: %w", locking.ErrOutcomeUnknown, io.ErrUnexpectedEOF)
	s := &script{acquire: failing(0, 1, failure)}
	err := locking.Do(t.Context(), s, locking.Options{}, one, func(context.Context, locking.Lease) error {
		t.Error("fn ran without the lock")
		return nil
	})
	if errors.Is(err, locking.ErrOutcomeUnknown) || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "redis: no answer") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error(), "unknown") {
		t.Errorf("the text of %q claims what its type denies", err)
	}
}

// The error says once what failed: the Store's own text, or that of Acquire if the Store does not name the keys.
func TestAcquire_ErrorsNameTheOperationAndTheKeysOnce(t *testing.T) {
	described := fmt.Errorf("redislock: acquire %q: %w", one, locking.ErrBusy)
	for name, c := range map[string]struct {
		err  error
		o    locking.Options
		want string
	}{
		"of a store that names them": {described, locking.Options{NoWait: true}, `redislock: acquire ["account/42"]: locking: busy: another holder has the key`},
		"of a store that does not":   {locking.ErrBusy, locking.Options{NoWait: true}, `locking: acquire ["account/42"]: locking: busy: another holder has the key`},
		"the caller's ctx ended":     {described, steady, `redislock: acquire ["account/42"]: locking: busy: another holder has the key: context deadline exceeded (gave up after 5s)`},
		"after MaxWait":              {described, locking.Options{MaxWait: 2 * time.Second, Backoff: steady.Backoff}, `redislock: acquire ["account/42"]: locking: busy: another holder has the key (gave up after 2s)`},
		"a failure":                  {errDown, locking.Options{}, `locking: acquire ["account/42"]: connection refused`},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := locking.Acquire(ctx, &script{acquire: failing(0, math.MaxInt, c.err)}, c.o, one...)
			if err == nil || err.Error() != c.want {
				t.Errorf("%s: got\n%v, want\n%s", name, err, c.want)
			}
		})
	}
}

type codedError struct{ code int }

func (e *codedError) Error() string { return fmt.Sprint("code ", e.code) }

// The caller decides whether to continue without a lock service.
func TestAcquire_FailureOfTheStoreIsReturnedAtOnceAndIsNotBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{acquire: first(failing(0, 1, locking.ErrBusy), failing(1, 2, &codedError{7}))}
		_, err := locking.Acquire(t.Context(), s, steady, one...)
		var coded *codedError
		if !errors.As(err, &coded) || coded.code != 7 || errors.Is(err, locking.ErrBusy) {
			t.Errorf("got %v, want the store's own error and not ErrBusy", err)
		}
		if len(s.acquires) != 2 {
			t.Errorf("%d requests were sent", len(s.acquires))
		}
	})
}

func TestAcquire_CtxThatHasEndedTakesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &script{}
	for name, store := range map[string]locking.Store{"polling": s, "waiting": &queue{script: s}} {
		if _, err := locking.Acquire(ctx, store, locking.Options{}, one...); !errors.Is(err, context.Canceled) || errors.Is(err, locking.ErrBusy) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if len(s.acquires) != 0 {
		t.Errorf("%d requests were sent", len(s.acquires))
	}
}

// Canceled would mean that the caller of the outer Do has left. Only its lease is lost.
func TestAcquire_InsideALostLeaseFailsWithTheLoss(t *testing.T) {
	err := refused().under(t, func(ctx context.Context) error {
		<-ctx.Done()
		_, err := locking.Acquire(ctx, &script{}, locking.Options{}, one...)
		return err
	})
	if !errors.Is(err, locking.ErrLost) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrLost and not Canceled", err)
	}
}

func TestAcquire_BadKeysNeverReachTheStore(t *testing.T) {
	s := &script{}
	for _, keys := range [][]string{nil, {}, {""}, {"good", "a\x00b"}} {
		if _, err := locking.Acquire(t.Context(), s, locking.Options{}, keys...); !errors.Is(err, locking.ErrKey) {
			t.Errorf("%q: got %v, want ErrKey", keys, err)
		}
	}
	if len(s.acquires) != 0 {
		t.Errorf("%d requests were sent", len(s.acquires))
	}
}

// queue is a Store with a queue of its own.
type queue struct {
	*script
	err error
}

func (q *queue) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	if q.err != nil {
		<-ctx.Done()
		return locking.Lease{}, q.err
	}
	return q.TryAcquire(ctx, keys...)
}

func TestAcquire_UsesTheQueueOfAWaiter(t *testing.T) {
	q := &queue{script: &script{}}
	lease, err := locking.Acquire(t.Context(), q, locking.Options{}, one...)
	if err != nil || lease.Fence != 1 {
		t.Errorf("got %+v, %v", lease, err)
	}
}

func TestAcquire_AddsTheEndOfCtxToTheErrorOfAWaiter(t *testing.T) {
	for _, err := range []error{errDown, context.DeadlineExceeded, errors.Join(locking.ErrBusy, context.DeadlineExceeded)} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, got := locking.Acquire(ctx, &queue{script: &script{}, err: err}, locking.Options{}, one...)
			if !errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, err) {
				t.Errorf("got %v, want DeadlineExceeded and %v", got, err)
			}
			if errors.Is(got, locking.ErrBusy) != errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v, want ErrBusy only if the Waiter returned it", got)
			}
		})
	}
}
