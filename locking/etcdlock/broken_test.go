package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"shop/locking"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

// twisted is a Store in which some methods are replaced. acquire and acquired apply to
// both TryAcquire and Acquire.
type twisted struct {
	*Store
	acquired func(locking.Lease, error) (locking.Lease, error)
	acquire  func(context.Context, func(context.Context, ...string) (locking.Lease, error), []string) (locking.Lease, error)
	renew    func(context.Context, locking.Lease) (locking.Lease, error)
	release  func(context.Context, locking.Lease) error
}

func (s twisted) through(ctx context.Context, f func(context.Context, ...string) (locking.Lease, error), keys []string) (l locking.Lease, err error) {
	if s.acquire != nil {
		l, err = s.acquire(ctx, f, keys)
	} else {
		l, err = f(ctx, keys...)
	}
	if s.acquired != nil && err == nil {
		return s.acquired(l, err)
	}
	return l, err
}

func (s twisted) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.through(ctx, s.Store.TryAcquire, keys)
}

func (s twisted) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.through(ctx, s.Store.Acquire, keys)
}

func (s twisted) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	if s.renew == nil {
		return s.Store.Renew(ctx, l)
	}
	return s.renew(ctx, l)
}

func (s twisted) Release(ctx context.Context, l locking.Lease) error {
	if s.release == nil {
		return s.Store.Release(ctx, l)
	}
	return s.release(ctx, l)
}

// changes makes a mutant that changes each granted lease.
func changes(f func(*Store, *locking.Lease)) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return twisted{Store: s, acquired: func(l locking.Lease, err error) (locking.Lease, error) {
			f(s, &l)
			return l, err
		}}
	}
}

// sharedSession uses etcd's own mutex, with one session for all goroutines: T4.
func sharedSession(s *Store) locking.Store {
	session, err := concurrency.NewSession(s.client, concurrency.WithTTL(10))
	if err != nil {
		panic(err)
	}
	s.work.Go(func() {
		<-s.life.Done()
		_ = session.Close()
	})
	lock := func(ctx context.Context, _ func(context.Context, ...string) (locking.Lease, error), keys []string) (locking.Lease, error) {
		if _, err := checkKeys(keys); err != nil {
			return locking.Lease{}, err
		}
		m := concurrency.NewMutex(session, s.queueOf(keys[0])+"mutex")
		if err := m.TryLock(ctx); errors.Is(err, concurrency.ErrLocked) {
			return locking.Lease{}, locking.ErrBusy
		} else if err != nil {
			return locking.Lease{}, err
		}
		return locking.Lease{Keys: keys, Owner: m.Key(), Fence: locking.Fence(m.Header().Revision), Until: time.Now().Add(5 * time.Second)}, nil
	}
	return twisted{
		Store: s, acquire: lock,
		release: func(ctx context.Context, l locking.Lease) error {
			_, err := s.client.Delete(ctx, l.Owner)
			return err
		},
	}
}

// releasesTheQueue frees the key whichever Lease holds it.
func releasesTheQueue(s *Store) locking.Store {
	return twisted{Store: s, release: func(ctx context.Context, l locking.Lease) error {
		for _, k := range l.Keys {
			if _, err := s.client.Delete(ctx, s.queueOf(k), clientv3.WithPrefix()); err != nil {
				return err
			}
		}
		_ = s.Release(ctx, l)
		return nil
	}}
}

// deaf ignores the end of ctx.
func deaf(s *Store) locking.Store {
	return twisted{
		Store: s,
		acquire: func(ctx context.Context, f func(context.Context, ...string) (locking.Lease, error), keys []string) (locking.Lease, error) {
			return f(context.WithoutCancel(ctx), keys...)
		},
		release: func(ctx context.Context, l locking.Lease) error { return s.Release(context.WithoutCancel(ctx), l) },
	}
}

// oneByOne takes key by key, and keeps those it has when the next one is busy.
func oneByOne(s *Store) locking.Store {
	return twisted{Store: s, acquire: func(ctx context.Context, f func(context.Context, ...string) (locking.Lease, error), keys []string) (all locking.Lease, err error) {
		for _, k := range keys {
			if all, err = f(ctx, k); err != nil {
				return locking.Lease{}, err
			}
		}
		all.Keys = keys
		return all, nil
	}}
}

// guesses takes the lack of an answer for one: busy, or lost.
func guesses(s *Store) locking.Store {
	guess := func(err, instead error) error {
		if errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, errNoAnswer) {
			return instead
		}
		return err
	}
	return twisted{
		Store: s,
		acquire: func(ctx context.Context, f func(context.Context, ...string) (locking.Lease, error), keys []string) (locking.Lease, error) {
			l, err := f(ctx, keys...)
			return l, guess(err, locking.ErrBusy)
		},
		release: func(ctx context.Context, l locking.Lease) error { return guess(s.Release(ctx, l), locking.ErrLost) },
	}
}

// leaseIDs returns the session's lease id as the fence, as etcd's own example does.
func leaseIDs(s *Store) locking.Store {
	return twisted{
		Store: s,
		acquired: func(l locking.Lease, err error) (locking.Lease, error) {
			l.Fence = locking.Fence(id(s))
			return l, err
		},
		release: func(ctx context.Context, l locking.Lease) error {
			s.mu.Lock()
			l.Fence = s.grants[l.Owner].lease.Fence
			s.mu.Unlock()
			return s.Release(ctx, l)
		},
	}
}
