package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

var (
	_ locking.Store  = (*Store)(nil)
	_ locking.Waiter = (*Store)(nil)
)

// ErrTTL tells that etcd would give another TTL than the one that was asked for.
var ErrTTL = errors.New("etcdlock: TTL must be whole seconds, and at least one and a half of etcd's election timeout (2s with its defaults)")

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in etcd; empty: "lock". Stores exclude each other
	// only if they have the same one.
	Prefix string
}

// Store keeps locks in etcd. It is safe for use by many goroutines, and one is
// enough for a process: its waiters stand in one line, and are kept alive by one
// request. The client stays the caller's: Close does not close it.
type Store struct {
	client *clientv3.Client
	prefix string
	source source
	ttl    time.Duration
	trust  time.Duration // of the TTL, how much to believe in

	life context.Context // ends with Close
	end  context.CancelCauseFunc
	work sync.WaitGroup // all goroutines of the Store

	mu      sync.Mutex
	session *session      // what goes to etcd next goes on it; nil: there is none
	down    error         // why there is none, if it was tried
	changed chan struct{} // closed, and replaced, when something in here has changed
	closed  bool
	lines   lines
	grants  map[string]*grant // by owner
	marks   []string          // free for the next attempts
}

// New makes a Store whose leases last ttl, and opens its session: etcd has to be
// there. A TTL that etcd would round, or raise to its minimum, is ErrTTL.
func New(ctx context.Context, client *clientv3.Client, ttl time.Duration, o Options) (*Store, error) {
	if ttl < time.Second || ttl%time.Second != 0 {
		return nil, fmt.Errorf("%w: %v", ErrTTL, ttl)
	}
	prefix, err := checkPrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, prefix: prefix, ttl: ttl, trust: ttl - margin(ttl),
		changed: make(chan struct{}), lines: lines{}, grants: map[string]*grant{},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	if s.source, err = s.findSource(ctx); err != nil {
		return nil, fmt.Errorf("etcdlock: find the source of fences: %w", plain(ctx, err))
	}
	first, err := s.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: open a session: %w", plain(ctx, err))
	}
	s.session = first
	s.work.Go(func() { s.run(first) })
	return s, nil
}

// TryAcquire takes all keys or none. It returns locking.ErrBusy if someone else
// has one of them, or waits for it, and has left no waiter behind then.
//
// After a request without an answer it makes sure that nothing is left of it, and
// tries once more, for at most half the TTL. If it cannot, the error is
// locking.ErrOutcomeUnknown and the rest is done in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, func(_ context.Context, keys []string) (*place, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p, ok := s.lines.tryJoin(keys); ok {
			return p, nil
		}
		return nil, locking.ErrBusy
	}, (*attempt).tryEnter)
}

// Acquire waits for all keys, in the order of arrival: in this process first,
// then among the processes. If ctx ends first, the error matches ctx.Err(), and
// locking.ErrBusy too if it stood in a queue, which it has left then.
func (s *Store) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, s.queueUp, (*attempt).enterAndWait)
}

// Renew brings a later Until, that of a keep-alive which etcd has answered, and
// looks whether the keys are still ours. It returns locking.ErrLost, finally, if
// they are not, or if l was not renewed before its Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	fail := func(err error) (locking.Lease, error) {
		return l, fmt.Errorf("etcdlock: renew %q: %w", l.Keys, err)
	}
	ctx, cancel := s.lifeOf(ctx)
	defer cancel()
	g, err := s.grantOf(l)
	if err != nil {
		return fail(err)
	}
	if err := g.session.fresher(ctx, g.deadline()); err != nil {
		return fail(err)
	}
	if err := g.check(ctx); err != nil {
		return fail(err)
	}
	if l.Until, err = s.extend(g); err != nil {
		return fail(err)
	}
	return l, nil
}

// Release gives the keys back. It returns locking.ErrLost if one of them was not
// under this lease any more; the others are given back all the same. After
// any other error it goes on trying in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) error {
	ctx, cancel := s.lifeOf(ctx)
	defer cancel()
	g, err := s.grantOf(l)
	if err == nil {
		err = g.release(ctx)
	}
	if err != nil {
		return fmt.Errorf("etcdlock: release %q: %w", l.Keys, err)
	}
	return nil
}

// Close ends the session, refuses what comes after, and waits for the background
// work, at most as long as for one answer. If a Lease is still held, its keys
// are left to the TTL; else nothing of this Store stays in etcd.
func (s *Store) Close() {
	s.end(ErrClosed)
	s.mu.Lock()
	if x := s.session; x != nil {
		x.kill(ErrClosed)
	}
	s.closed = true
	for _, g := range s.grants {
		g.timer.Stop()
	}
	s.mu.Unlock()
	s.work.Wait()
}
