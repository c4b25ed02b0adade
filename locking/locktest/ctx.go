// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"errors"
	"math"
	"time"

	"shop/locking"
)

// ctxEnded checks that a request with an ended ctx returns the error of ctx and takes no key.
func ctxEnded(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if lease, err := a.TryAcquire(ended, key); !errors.Is(err, context.Canceled) {
		s.Errorf("TryAcquire: got %+v and %v, want context.Canceled", lease, err)
	}
	if lease, err := locking.Acquire(ended, a, options(), key); !errors.Is(err, context.Canceled) {
		s.Errorf("Acquire: got %+v and %v, want context.Canceled", lease, err)
	}
	s.release(b, s.try(b, key))
}

// ctxWaiting checks that a waiter whose ctx ends returns at once and delays no other waiter.
func ctxWaiting(s *suite) {
	a, b, c := s.open(s.long()), s.open(s.long()), s.open(s.long())
	held := s.try(a, key)

	s.returnsAtOnce("cancelled", context.Canceled, func() (time.Duration, error) {
		ctx, cancel := context.WithCancel(context.Background())
		return s.waitAndStop(ctx, b, cancel)
	})
	s.returnsAtOnce("past the deadline", context.DeadlineExceeded, func() (time.Duration, error) {
		return s.waitAndStop(s.within(50*time.Millisecond), b, func() {})
	})
	s.busy(c, key)
	s.release(a, held)
	if s.Waiting != nil {
		s.eventually("the queue is empty", func() bool { return s.Waiting(key) == 0 })
	}
	// A waiter that has left must not keep the key. Its last request may have taken the key after it
	// left: that must be undone.
	ctx := s.within(deadline)
	for range 10 {
		var lease locking.Lease
		s.eventually("the key is free", func() bool {
			var err error
			lease, err = c.TryAcquire(ctx, key)
			return err == nil
		})
		s.release(c, lease)
	}
}

// returnsAtOnce checks that a call returns the error want at once after the end of its ctx. The
// call returns its time after that end. A stall of the machine may make it return before ctx ends,
// with another error, or late.
func (s *suite) returnsAtOnce(what string, want error, call func() (time.Duration, error)) {
	s.Helper()
	var took time.Duration
	var err error
	for tries, late := 0, 0; tries < triesMax && late < lateMax; tries++ {
		switch took, err = call(); {
		case took > atOnce:
			late++
		case errors.Is(err, want):
			return
		}
	}
	s.Fatalf("%s: got %v, %v after the end of ctx, want %v at once", what, err, took, want)
}

// waitAndStop waits for the held key, and calls stop when the wait has certainly begun.
func (s *suite) waitAndStop(ctx context.Context, store locking.Store, stop func()) (time.Duration, error) {
	s.Helper()
	result := s.wait(ctx, store, options())
	stop()
	return s.afterEnd(ctx, result)
}

// wait starts to wait for the held key, and returns when the first attempt is under way.
// If the key is granted after all, wait releases it.
func (s *suite) wait(ctx context.Context, store locking.Store, o locking.Options) <-chan error {
	s.Helper()
	waiting, result := make(chan struct{}, 1), make(chan error, 1)
	o.Observer = func(locking.Event) {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}
	go func() {
		lease, err := locking.Acquire(ctx, store, o, key)
		if err == nil {
			err = store.Release(context.Background(), lease)
		}
		result <- err
	}()
	select {
	case <-waiting:
	case err := <-result:
		if ctx.Err() == nil {
			s.Fatalf("waiting for a held key ended before ctx did: %v", err)
		}
		result <- err // a stall of the machine lasted longer than ctx
	}
	return result
}

// afterEnd returns the result, and its time after the end of ctx.
func (s *suite) afterEnd(ctx context.Context, result <-chan error) (time.Duration, error) {
	s.Helper()
	<-ctx.Done()
	ended := time.Now()
	select {
	case err := <-result:
		return time.Since(ended), err
	case <-time.After(deadline):
		s.Fatalf("no return %v after the end of ctx", deadline)
		return 0, nil
	}
}

// ctxSilence checks that each of the three methods returns at the end of ctx although the
// server does not answer. The TTL is so long that only ctx can be the reason. Release
// comes last, since it may end the lease in the store.
func ctxSilence(s *suite) {
	w, _ := s.proxied(s.ttl(8 * time.Second))
	held := s.try(w.Store, key)
	w.Lose(math.MaxInt)
	for _, verb := range []struct {
		name string
		call func(context.Context) error
	}{
		{"TryAcquire", func(ctx context.Context) error {
			_, err := w.Store.TryAcquire(ctx, "another")
			return err
		}},
		{"Renew", func(ctx context.Context) error {
			_, err := w.Store.Renew(ctx, held)
			return err
		}},
		{"Release", func(ctx context.Context) error { return w.Store.Release(ctx, held) }},
	} {
		s.returnsAtOnce(verb.name, context.Canceled, func() (time.Duration, error) { return s.cancelled(w, verb.call) })
	}
	w.Lose(0)
}

// cancelled makes a call, and cancels its ctx when the answer is certainly lost.
func (s *suite) cancelled(w Proxied, call func(context.Context) error) (time.Duration, error) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result, lost := make(chan error, 1), w.Lost()
	go func() { result <- call(ctx) }()
	s.eventually("the answer is lost", func() bool { return w.Lost() > lost })
	cancel()
	return s.afterEnd(ctx, result)
}
