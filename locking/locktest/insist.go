// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"shop/locking"
)

// options make Acquire retry often, because the waits of the suite are short.
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

// acquire is locking.Acquire, retried until it gets an answer.
func acquire(ctx context.Context, store locking.Store, keys ...string) (lease locking.Lease, err error) {
	err = Insist(ctx, func(bool) (err error) {
		lease, err = locking.Acquire(ctx, store, options(), keys...)
		return err
	})
	return lease, err
}

// requestsMax is how often a request may remain without an answer before the check fails:
// with a short TTL each takes a fraction of a second. triesMax is how often a check is
// tried when the machine stalls during it, and lateMax how often it may miss a time limit.
const (
	requestsMax = 40
	triesMax    = 8
	lateMax     = 4
)

// rounds runs a round of a check with a TTL of about d. If the round returns an error, a stall
// of the machine may be the reason, and the next one has twice the TTL. Each has a key of its own,
// because a void round may leave its key locked.
func (s *suite) rounds(d time.Duration, round func(ttl time.Duration, key string) error) {
	s.Helper()
	var err error
	for i := range lateMax {
		err = round(s.ttl(d)<<i, fmt.Sprint(key, "/", i))
		if err == nil || s.Failed() {
			return
		}
	}
	s.Errorf("in each of %d rounds: %v", lateMax, err)
}

// void returns err, of a request about a lease, if the lease has expired. Otherwise an error
// fails the check.
func (s *suite) void(l locking.Lease, err error) error {
	s.Helper()
	if err != nil && (l.Until.IsZero() || time.Now().Before(l.Until)) {
		s.Fatalf("%+v is held: %v", l, err)
	}
	return err
}

// Insist calls request until the store answers. On a machine that stalls, a request of any
// store may miss its answer or fail to connect, and the suite does not test that. The
// argument of request is false in the first call and true in every later one.
func Insist(ctx context.Context, request func(again bool) error) error {
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for tries := 1; ; tries++ {
		err := request(tries > 1)
		if answered(err) || tries == requestsMax || ctx.Err() != nil {
			return err
		}
		<-pace.C
	}
}

// answered reports whether err is an answer of the store, and not the lack of one.
func answered(err error) bool {
	return err == nil || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrKey)
}

// try takes keys that are free.
func (s *suite) try(store locking.Store, keys ...string) locking.Lease {
	s.Helper()
	lease, err := taken(s.within(deadline), store, keys...)
	if err != nil {
		s.Fatalf("acquire %q, which are free: %v", keys, err)
	}
	s.inspect(lease, keys)
	return lease
}

// taken takes keys that are free. ErrBusy is wrong, unless an earlier attempt of this call
// had no answer and may have left a lock behind.
func taken(ctx context.Context, store locking.Store, keys ...string) (lease locking.Lease, err error) {
	err = Insist(ctx, func(again bool) (err error) {
		lease, err = store.TryAcquire(ctx, keys...)
		if again && errors.Is(err, locking.ErrBusy) {
			lease, err = locking.Acquire(ctx, store, options(), keys...)
		}
		return err
	})
	return lease, err
}

// busy checks that a request for keys of another owner returns ErrBusy.
func (s *suite) busy(store locking.Store, keys ...string) {
	s.Helper()
	if err := busy(s.within(deadline), store, keys...); err != nil {
		s.Fatalf("%v", err)
	}
}

// busy returns an error unless a request for the keys returns ErrBusy.
func busy(ctx context.Context, store locking.Store, keys ...string) error {
	var lease locking.Lease
	err := Insist(ctx, func(bool) (err error) {
		lease, err = store.TryAcquire(ctx, keys...)
		return err
	})
	switch {
	case err == nil:
		return fmt.Errorf("acquire %q, which another owner holds: got %+v, want ErrBusy", keys, lease)
	case !errors.Is(err, locking.ErrBusy):
		return fmt.Errorf("acquire %q, which another owner holds: got %w, want ErrBusy", keys, err)
	}
	return nil
}

// renew renews a lease that is held.
func (s *suite) renew(store locking.Store, l locking.Lease) locking.Lease {
	s.Helper()
	next, err := renew(s.within(deadline), store, l)
	if err != nil {
		s.Fatalf("renew %+v, which is held: %v", l, err)
	}
	return next
}

func renew(ctx context.Context, store locking.Store, l locking.Lease) (next locking.Lease, err error) {
	err = Insist(ctx, func(bool) (err error) {
		next, err = store.Renew(ctx, l)
		return err
	})
	return next, err
}

func (s *suite) release(store locking.Store, l locking.Lease) {
	s.Helper()
	if err := release(s.within(deadline), store, l); err != nil {
		s.Fatalf("release %+v, which is held: %v", l, err)
	}
}

// release releases a lease that is held. A retry may find it released already.
func release(ctx context.Context, store locking.Store, l locking.Lease) error {
	return Insist(ctx, func(again bool) error {
		err := store.Release(ctx, l)
		if again && errors.Is(err, locking.ErrLost) {
			return nil
		}
		return err
	})
}

// Taken takes keys that are free, in a test of a single store. As in the suite, a request without
// an answer is repeated.
func Taken(t testing.TB, s locking.Store, keys ...string) locking.Lease {
	t.Helper()
	lease, err := taken(t.Context(), s, keys...)
	if err != nil {
		t.Fatalf("acquire %q, which are free: %v", keys, err)
	}
	return lease
}

// WantHeld fails the test unless another owner holds the keys.
func WantHeld(t testing.TB, s locking.Store, keys ...string) {
	t.Helper()
	if err := busy(t.Context(), s, keys...); err != nil {
		t.Fatal(err)
	}
}

// Released releases a lease that is held. It may be called in a Cleanup.
func Released(t testing.TB, s locking.Store, l locking.Lease) {
	t.Helper()
	if err := release(context.WithoutCancel(t.Context()), s, l); err != nil {
		t.Fatalf("release %+v, which is held: %v", l, err)
	}
}

// WantBusy fails the test unless err matches locking.ErrBusy.
func WantBusy(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, locking.ErrBusy) {
		t.Fatalf("got %v, want ErrBusy", err)
	}
}

// WantApart fails the test unless stores with one prefix exclude each other, and those with another one do not. A store of one
// prefix releases what another one with the same prefix has taken.
func WantApart(t testing.TB, with func(prefix string) locking.Store) {
	t.Helper()
	lease := Taken(t, with("a/"), "k")
	Taken(t, with("b/"), "k")
	WantHeld(t, with("a/"), "k")
	Released(t, with("a/"), lease)
	Taken(t, with("a/"), "k")
}
