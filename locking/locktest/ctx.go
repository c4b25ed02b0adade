package locktest

import (
	"context"
	"errors"
	"math"
	"time"

	"shop/locking"
)

// ctxEnded: a request with an ended ctx returns the error of ctx and takes no key.
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

// ctxWaiting: a waiter whose ctx ends returns at once, and delays no other waiter.
func ctxWaiting(s *suite) {
	a, b, c := s.open(s.long()), s.open(s.long()), s.open(s.long())
	held := s.try(a, key)

	ctx, cancel := context.WithCancel(context.Background())
	err := s.waitAndStop(ctx, b, cancel)
	if !errors.Is(err, context.Canceled) {
		s.Errorf("cancelled: got %v, want context.Canceled", err)
	}
	err = s.waitAndStop(s.within(50*time.Millisecond), b, func() {})
	if !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("past the deadline: got %v, want context.DeadlineExceeded", err)
	}
	s.busy(c, key)
	s.release(a, held)
	if s.Waiting != nil {
		s.eventually("the queue is empty", func() bool { return s.Waiting(key) == 0 })
	}
	// No waiter that has left keeps the key. The last request of one may have taken it, when its answer
	// was not waited for any more: that is undone.
	ctx = s.within(deadline)
	for range 10 {
		var lease locking.Lease
		s.eventually("the key is free", func() bool {
			lease, err = c.TryAcquire(ctx, key)
			return err == nil
		})
		s.release(c, lease)
	}
}

// waitAndStop waits for the held key, calls stop when it certainly waits, and
// wants Acquire back at once.
func (s *suite) waitAndStop(ctx context.Context, store locking.Store, stop func()) error {
	s.Helper()
	result := s.wait(ctx, store, options())
	stop()
	return s.soon(ctx, result)
}

// wait starts to wait for the held key, and returns when the first attempt is
// under way. If it gets the key after all, it gives it back.
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
		result <- err // the machine stalled for as long as ctx lasted
	}
	return result
}

// soon returns the result, which has to come at once when ctx has ended.
func (s *suite) soon(ctx context.Context, result <-chan error) error {
	s.Helper()
	<-ctx.Done()
	for _, limit := range []time.Duration{atOnce, deadline} {
		select {
		case err := <-result:
			return err
		case <-time.After(limit):
			s.Errorf("no return %v after the end of ctx", limit)
		}
	}
	s.FailNow()
	return nil
}

// ctxSilence: the end of ctx is heard although the server says nothing, for
// each of the three verbs. The TTL is so long that only ctx can be the reason.
// Release comes last: a store may well know by itself what that does to a lease.
func ctxSilence(s *suite) {
	w := s.proxied(s.ttl(8 * time.Second))
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
		var err error
		for range triesMax { // if a stall of the machine let the call end before ctx did
			if err = s.cancelled(w, verb.call); errors.Is(err, context.Canceled) || s.Failed() {
				break
			}
		}
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: got %v, want context.Canceled", verb.name, err)
		}
	}
	w.Lose(0)
}

// cancelled calls, cancels when the answer is certainly lost, and wants the call
// back at once.
func (s *suite) cancelled(w Proxied, call func(context.Context) error) error {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result, lost := make(chan error, 1), w.Lost()
	go func() { result <- call(ctx) }()
	s.eventually("the answer is lost", func() bool { return w.Lost() > lost })
	cancel()
	return s.soon(ctx, result)
}
