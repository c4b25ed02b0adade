package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

var _ locking.Waiter = (*Store)(nil)

// TTLMin is the shortest TTL of a Store: the server has to flush several commits within
// it. A TTL is a whole number of milliseconds.
const TTLMin = 100 * time.Millisecond

// ErrClosed is returned by a store of this package after its Close.
var ErrClosed = errors.New("mysqllock: store is closed")

// turn is how long the requests of a process pass a key to each other without a pause: some fifteen grants.
const turn = 6 * time.Millisecond

// Store keeps locks in the table locks of this package's migrations. It is safe for
// concurrent use. The caller owns db, and closes it after the Store.
type Store struct {
	db             *sql.DB
	ttl            time.Duration
	trust          time.Duration // the TTL less a margin for clocks that drift
	requestTimeout time.Duration // for one answer
	resolver       *locking.Resolver
	poller         locking.Poller

	takeOne, passOne, freeOne string // the statements of one.go
}

// New makes a Store whose leases last ttl. Stores exclude each other only if the DSN of their db names
// the same database. A request occupies a connection for one round trip, so two or three
// connections serve many leases; let db keep them idle (SetMaxIdleConns). None of them may be in a transaction while it is
// idle: a grant would be a part of that transaction. So completion_type must be NO_CHAIN, which is the default.
func New(db *sql.DB, ttl time.Duration) (*Store, error) {
	if err := locking.CheckClient(db); err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	if ttl < TTLMin || ttl%time.Millisecond != 0 {
		return nil, fmt.Errorf("mysqllock: TTL %v: must be whole milliseconds, at least %v: it is not rounded", ttl, TTLMin)
	}
	s := &Store{
		db: db, ttl: ttl, trust: ttl - margin(ttl),
		requestTimeout: ttl / 6, // three fit into the half TTL in which TryAcquire retries
		resolver:       locking.NewResolver(ttl, ttl/6),
		takeOne:        takeOne, passOne: passOne, freeOne: freeOne,
	}
	s.poller = locking.Poller{
		Pause: locking.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}, Turn: turn,
		Unused: func(l locking.Lease) { s.resolver.Abandon(s.removal(l.Keys, l.Owner)) },
	}
	return s, nil
}

// margin is how much earlier than the TTL a lease's Until is: a hundredth of the TTL and
// 2 ms, for clocks that run at different rates.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holder has
// one of them.
//
// A request without an answer is retried, as the same owner, for at most half the TTL.
// If no answer comes, or ctx ends first, the error is locking.ErrOutcomeUnknown, and
// what the request may have taken is released in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if keys, err = locking.SortedKeys(keys); err == nil {
		lease, err = s.take(ctx, keys)
	}
	return lease, err
}

// Acquire waits for all keys: in this process in the order of arrival, among the processes in any
// order. MySQL has nothing that a release could wake a waiter of another process with, so the first waiter of each process
// tries again after 1 to 50 ms (locking.Poller).
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if the request
// was in the queue.
func (s *Store) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if keys, err = locking.SortedKeys(keys); err != nil {
		return lease, err
	}
	return s.poller.Acquire(ctx, keys, func() (locking.Lease, error) { return s.take(ctx, keys) })
}

// take requests sorted keys as a new owner.
func (s *Store) take(ctx context.Context, keys []string) (lease locking.Lease, err error) {
	if err := ctx.Err(); err != nil {
		return locking.Lease{}, err
	}
	owner := rand.Text() // at least 128 random bits
	err = s.resolver.Acquire(ctx, func() error {
		sent := time.Now() // before the request: the TTL cannot start earlier
		fence, err := s.grant(ctx, keys, owner)
		if err == nil && fence == 0 {
			err = locking.ErrBusy
		}
		lease = locking.Lease{Keys: keys, Owner: owner, Fence: locking.Fence(fence), Until: sent.Add(s.trust)}
		return err
	}, s.removal(keys, owner))
	if err != nil {
		return locking.Lease{}, err
	}
	return lease, nil
}

// removal returns a function that frees what owner may have taken, under any fence.
func (s *Store) removal(keys []string, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.call(ctx, "locks_release", names(keys), owner, 0)
		return err
	}
}

// Renew restarts the TTL, on all keys or on none. It returns locking.ErrLost, finally, if
// the lease no longer holds one of them; it never takes a key again. After any other error
// l is as valid as before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	if len(l.Keys) == 0 {
		return l, locking.ErrLost
	}
	sent := time.Now()
	switch held, err := s.call(ctx, "locks_renew", names(l.Keys), l.Owner, int64(l.Fence), s.ttl.Microseconds()); {
	case err != nil:
		return l, err
	case held == 0:
		return l, locking.ErrLost
	}
	l.Until = sent.Add(s.trust)
	return l, nil
}

// Release frees the keys, or passes the one key to the next waiter of this process. It returns locking.ErrLost
// if the lease no longer held one of them; the others are freed all the same. After locking.ErrOutcomeUnknown the release is
// retried in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	if len(l.Keys) == 0 {
		return locking.ErrLost
	}
	return s.poller.Release(l, func() (locking.Lease, error) { return s.pass(ctx, l) }, func() error {
		held, err := s.free(ctx, l)
		switch {
		case errors.Is(err, locking.ErrOutcomeUnknown):
			s.resolver.Abandon(s.removal(l.Keys, l.Owner))
		case err == nil && held < int64(len(l.Keys)):
			return locking.ErrLost
		}
		return err
	})
}

// Close ends the background work and waits for it, at most as long as for one answer. It
// releases no locks.
func (s *Store) Close() { s.resolver.Close() }

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("mysqllock: %s %q: %w", operation, keys, *err)
	}
}
