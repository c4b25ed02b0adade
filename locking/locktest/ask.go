package locktest

import (
	"context"
	"errors"
	"time"

	"shop/locking"
)

// options make Acquire ask often: the suite has little to wait for.
func options() locking.Options {
	return locking.Options{Backoff: locking.Backoff{Base: 2 * time.Millisecond, Max: 20 * time.Millisecond}}
}

// acquire waits for the keys, and fails the check if it takes longer than d.
func (s *suite) acquire(d time.Duration, store locking.Store, keys ...string) locking.Lease {
	s.Helper()
	lease, err := acquire(s.within(d), store, keys...)
	if err != nil {
		s.Fatalf("acquire %q within %v: %v", keys, d, err)
	}
	s.inspect(lease, keys)
	return lease
}

// acquire is locking.Acquire, again and again while the store cannot tell: on a
// machine that stalls, any store may miss an answer at any time. (Acquire itself
// does not say so, since nothing is held; its Observer hears it.)
func acquire(ctx context.Context, store locking.Store, keys ...string) (lease locking.Lease, err error) {
	var untold bool
	o := options()
	o.Observer = func(e locking.Event) { untold = unknown(e.Err) }
	err = insist(ctx, func(bool) (final bool, err error) {
		lease, err = locking.Acquire(ctx, store, o, keys...)
		return !untold, err
	})
	return lease, err
}

// insist repeats f until it returns nil or what is final, or ctx ends. f is told
// whether it was asked before.
func insist(ctx context.Context, f func(again bool) (final bool, err error)) error {
	ask := time.NewTicker(2 * time.Millisecond)
	defer ask.Stop()
	for again := false; ; again = true {
		final, err := f(again)
		if err == nil || final || ctx.Err() != nil {
			return err
		}
		<-ask.C
	}
}

func unknown(err error) bool { return errors.Is(err, locking.ErrOutcomeUnknown) }

// try takes the keys, which are free: ErrBusy is wrong, unless it is about what
// an attempt of our own with unknown outcome left behind.
func (s *suite) try(store locking.Store, keys ...string) (lease locking.Lease) {
	s.Helper()
	ctx := s.within(patience)
	err := insist(ctx, func(again bool) (final bool, err error) {
		lease, err = store.TryAcquire(ctx, keys...)
		return !unknown(err) && !(again && errors.Is(err, locking.ErrBusy)), err
	})
	if err != nil {
		s.Fatalf("acquire %q, which nobody holds: %v", keys, err)
	}
	s.inspect(lease, keys)
	return lease
}

// busy asks for keys that someone else holds.
func (s *suite) busy(store locking.Store, keys ...string) {
	s.Helper()
	ctx := s.within(patience)
	var lease locking.Lease
	err := insist(ctx, func(bool) (final bool, err error) {
		lease, err = store.TryAcquire(ctx, keys...)
		return !unknown(err), err
	})
	if !errors.Is(err, locking.ErrBusy) {
		s.Fatalf("acquire %q, which someone else holds: got %+v and %v, want ErrBusy", keys, lease, err)
	}
}

// renew keeps a lease that we hold.
func (s *suite) renew(store locking.Store, l locking.Lease) locking.Lease {
	s.Helper()
	ctx := s.within(patience)
	var next locking.Lease
	err := insist(ctx, func(bool) (final bool, err error) {
		next, err = store.Renew(ctx, l)
		return !unknown(err), err
	})
	if err != nil {
		s.Fatalf("renew %+v, which we hold: %v", l, err)
	}
	return next
}

func (s *suite) release(store locking.Store, l locking.Lease) {
	s.Helper()
	if err := release(s.within(patience), store, l); err != nil {
		s.Fatalf("release %+v, which we hold: %v", l, err)
	}
}

// release gives back what we hold. Asked again it may be gone already.
func release(ctx context.Context, store locking.Store, l locking.Lease) error {
	return insist(ctx, func(again bool) (final bool, err error) {
		err = store.Release(ctx, l)
		if again && errors.Is(err, locking.ErrLost) {
			err = nil
		}
		return !unknown(err), err
	})
}
