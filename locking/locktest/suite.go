package locktest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"shop/locking"
)

// patience bounds what has to happen in the end, on a machine that is busy;
// atOnce bounds what must not wait for anything.
const (
	patience = 20 * time.Second
	atOnce   = time.Second
)

// key is the lock of most checks. Each check has a key space of its own.
const key = "account/42"

// suite is one check under way.
type suite struct {
	testing.TB
	Backend
	Promises
}

// ttl gives a TTL of about d that the store can represent.
func (s *suite) ttl(d time.Duration) time.Duration {
	if s.MinTTL <= 0 {
		return d
	}
	return (d + s.MinTTL - 1) / s.MinTTL * s.MinTTL
}

// Short enough to be waited out, long enough not to run out by accident.
func (s *suite) short() time.Duration { return s.ttl(600 * time.Millisecond) }
func (s *suite) long() time.Duration  { return s.ttl(10 * time.Second) }

// open makes a further Store.
func (s *suite) open(ttl time.Duration) locking.Store {
	s.Helper()
	store, err := s.Open(ttl)
	if err != nil {
		s.Fatalf("open a store with TTL %v: %v", ttl, err)
	}
	return store
}

// wire makes a Store whose answers can be lost, after a first exchange: what is
// lost then is the answer to a request, not to a greeting.
func (s *suite) wire(ttl time.Duration) Wire {
	s.Helper()
	w := s.Wire(ttl)
	s.release(w.Store, s.try(w.Store, "warm-up"))
	return w
}

func (s *suite) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	s.Cleanup(cancel)
	return ctx
}

// options make Acquire ask often: the suite has little to wait for.
func options() locking.Options {
	return locking.Options{Backoff: locking.Backoff{Base: 2 * time.Millisecond, Max: 20 * time.Millisecond}}
}

// acquire waits for the keys, and fails the check if it takes longer than d.
func (s *suite) acquire(d time.Duration, store locking.Store, keys ...string) locking.Lease {
	s.Helper()
	lease, err := locking.Acquire(s.within(d), store, options(), keys...)
	if err != nil {
		s.Fatalf("acquire %q within %v: %v", keys, d, err)
	}
	s.inspect(lease, keys)
	return lease
}

// try takes the keys, which are free.
func (s *suite) try(store locking.Store, keys ...string) locking.Lease {
	s.Helper()
	lease, err := store.TryAcquire(s.within(patience), keys...)
	if err != nil {
		s.Fatalf("acquire %q, which nobody holds: %v", keys, err)
	}
	s.inspect(lease, keys)
	return lease
}

// busy asks for keys that someone else holds.
func (s *suite) busy(store locking.Store, keys ...string) {
	s.Helper()
	if lease, err := store.TryAcquire(s.within(patience), keys...); err == nil {
		s.Fatalf("acquired %q, which someone else holds: %+v", keys, lease)
	} else if !errors.Is(err, locking.ErrBusy) {
		s.Fatalf("acquire %q, which someone else holds: got %v, want ErrBusy", keys, err)
	}
}

func (s *suite) release(store locking.Store, l locking.Lease) {
	s.Helper()
	if err := store.Release(s.within(patience), l); err != nil {
		s.Fatalf("release %+v, which we hold: %v", l, err)
	}
}

// lost wants both Renew and Release to say that l is not ours any more.
func (s *suite) lost(store locking.Store, l locking.Lease) {
	s.Helper()
	if _, err := store.Renew(s.within(patience), l); !errors.Is(err, locking.ErrLost) {
		s.Errorf("renew a lost lease: got %v, want ErrLost", err)
	}
	if err := store.Release(s.within(patience), l); !errors.Is(err, locking.ErrLost) {
		s.Errorf("release a lost lease: got %v, want ErrLost", err)
	}
}

// inspect checks what holds for each lease.
func (s *suite) inspect(l locking.Lease, keys []string) {
	s.Helper()
	if len(l.Keys) != len(keys) || l.Owner == "" {
		s.Errorf("lease %+v does not name its %d keys and its owner", l, len(keys))
	}
	if s.Expires == l.Until.IsZero() {
		s.Errorf("Until is %v, while Expires is promised: %t", l.Until, s.Expires)
	}
	if s.Expires && !strings.Contains(l.Until.String(), " m=") {
		s.Errorf("Until %v is not monotonic: a change of the clock would change it", l.Until)
	}
	if s.Fences != (l.Fence > 0) {
		s.Errorf("Fence is %d, while Fences is promised: %t", l.Fence, s.Fences)
	}
}

// eventually asks again and again until ok says yes.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	ask := time.NewTicker(2 * time.Millisecond)
	defer ask.Stop()
	for deadline := s.within(patience); !ok(); {
		select {
		case <-ask.C:
		case <-deadline.Done():
			s.Fatalf("%s: not within %v", what, patience)
		}
	}
}
