package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

var _ locking.Waiter = (*Store)(nil)

// TTLMin is the shortest TTL of a Store: the server has to flush several commits within
// it. A TTL is a whole number of milliseconds.
const TTLMin = 100 * time.Millisecond

// ErrClosed is returned by a store of this package after its Close.
var ErrClosed = errors.New("pglock: store is closed")

// Store keeps locks in the table locks of this package's migrations. It is safe for
// concurrent use. The caller owns the pool, and closes it after the Store.
type Store struct {
	pool           *pgxpool.Pool
	ttl            time.Duration
	trust          time.Duration // the TTL less a margin for clocks that drift
	requestTimeout time.Duration // for one answer
	poll           time.Duration // between the requests of a waiter that hears nothing
	resolver       *locking.Resolver

	queue     locking.Queue[string] // of the waiters in this process: only the first of each key sends requests
	waiters   waiters
	listening sync.Once
	life      context.Context // ends with Close
	end       context.CancelFunc

	takeOne, freeOne string // the statements of one.go
}

// New makes a Store whose leases last ttl. Stores exclude each other only if the
// search_path of their pools leads to the same table. A pool may connect through a pooler, with
// default_query_exec_mode=exec if the pooler cannot track prepared statements. A request
// occupies a connection for one round trip, so two or three connections serve many leases. The first wait takes one out of the pool, for LISTEN.
func New(pool *pgxpool.Pool, ttl time.Duration) (*Store, error) {
	if err := locking.CheckClient(pool); err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	if err := checkTTL(ttl); err != nil {
		return nil, err
	}
	s := &Store{
		pool: pool, ttl: ttl, trust: ttl - margin(ttl),
		requestTimeout: ttl / 6, // three fit into the half TTL in which TryAcquire retries
		poll:           250 * time.Millisecond,
		resolver:       locking.NewResolver(ttl, ttl/6),
		takeOne:        takeOne, freeOne: freeOne,
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < TTLMin || ttl%time.Millisecond != 0 {
		return fmt.Errorf("pglock: TTL %v: must be whole milliseconds, at least %v: it is not rounded", ttl, TTLMin)
	}
	return nil
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
		lease, err = s.take(ctx, keys, false)
	}
	return lease, err
}

// take requests sorted keys as a new owner. waits makes the release of a busy key notify.
func (s *Store) take(ctx context.Context, keys []string, waits bool) (lease locking.Lease, err error) {
	if err := ctx.Err(); err != nil {
		return locking.Lease{}, err
	}
	owner := rand.Text() // at least 128 random bits
	err = s.resolver.Acquire(ctx, func() error {
		sent := time.Now() // before the request: the TTL cannot start earlier
		fence, err := s.grant(ctx, keys, owner, waits)
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
		var held int
		return s.call(ctx, &held, `SELECT locks_release($1, $2, 0)`, keys, owner)
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
	sent, held := time.Now(), false
	switch err := s.call(ctx, &held, `SELECT locks_renew($1, $2, $3, $4)`, l.Keys, l.Owner, int64(l.Fence), s.ttl); {
	case err != nil:
		return l, err
	case !held:
		return l, locking.ErrLost
	}
	l.Until = sent.Add(s.trust)
	return l, nil
}

// Release frees the keys. It returns locking.ErrLost if the lease no longer held one of
// them; the others are freed all the same. After locking.ErrOutcomeUnknown the release is
// retried in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	if len(l.Keys) == 0 {
		return locking.ErrLost
	}
	held, err := s.free(ctx, l)
	switch {
	case errors.Is(err, locking.ErrOutcomeUnknown):
		s.resolver.Abandon(s.removal(l.Keys, l.Owner))
	case err == nil && held < len(l.Keys):
		return locking.ErrLost
	}
	return err
}

// Close ends the background work and waits for it, at most as long as for one answer. It
// releases no locks.
func (s *Store) Close() {
	s.end()
	s.resolver.Close()
}

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("pglock: %s %q: %w", operation, keys, *err)
	}
}
