package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
)

var _ locking.Waiter = (*Store)(nil)

// TTLMin is the shortest TTL of a Store: a majority has to answer several times within
// it. A TTL is a whole number of milliseconds, like a date in BSON.
const TTLMin = 100 * time.Millisecond

var (
	// ErrTransaction reports a request for a lease inside of a transaction, whose
	// snapshot is older than the lease: its data may have changed before the grant.
	// Take the lease first, then begin the transaction.
	ErrTransaction = errors.New("mongolock: not inside of a transaction")
	// ErrClosed is returned by a Store after its Close.
	ErrClosed = errors.New("mongolock: store is closed")
)

// Store keeps locks in a collection, which the first lock creates. It is safe for
// concurrent use. The caller owns the client.
type Store struct {
	collection     *mongo.Collection // a majority acknowledges its writes
	releases       *mongo.Collection // the same collection, whose writes the primary alone acknowledges
	ttl            time.Duration
	trust          time.Duration // the TTL less a margin for clocks that drift
	requestTimeout time.Duration // for one answer
	resolver       *locking.Resolver
	poller         locking.Poller
}

// turn is how long the requests of a process pass a key to each other without a pause: about five grants.
const turn = 6 * time.Millisecond

// New makes a Store whose leases last ttl. Stores exclude each other only if they use
// the same collection, which must hold nothing else. The Store sets its own write
// concern and time-outs, whatever the client's are.
func New(collection *mongo.Collection, ttl time.Duration) (*Store, error) {
	if err := locking.CheckClient(collection); err != nil {
		return nil, fmt.Errorf("mongolock: %w", err)
	}
	if ttl < TTLMin || ttl%time.Millisecond != 0 {
		return nil, fmt.Errorf("mongolock: TTL %v: must be whole milliseconds, at least %v: it is not rounded", ttl, TTLMin)
	}
	s := &Store{
		collection:     acknowledged(collection),
		releases:       collection.Clone(options.Collection().SetWriteConcern(writeconcern.W1())),
		ttl:            ttl,
		trust:          ttl - margin(ttl),
		requestTimeout: requestTimeout(ttl),
		resolver:       locking.NewResolver(ttl, requestTimeout(ttl)),
	}
	s.poller = locking.Poller{
		Pause: locking.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}, Turn: turn,
		Unused: func(l locking.Lease) { s.resolver.Abandon(s.removal(l.Keys[0], l.Owner)) },
	}
	return s, nil
}

// margin is how much earlier than the TTL a lease's Until is: a hundredth of the TTL for
// clocks that run at different rates, and 2 ms because dates are whole milliseconds.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// requestTimeout bounds the wait for one answer: several fit into the half TTL in which
// TryAcquire retries.
func requestTimeout(ttl time.Duration) time.Duration { return ttl / 6 }

// TryAcquire takes the key. It returns locking.ErrBusy if another holder has it.
//
// A request without an answer is retried, as the same owner, for at most half the TTL.
// If no answer comes, or ctx ends first, the error is locking.ErrOutcomeUnknown, and
// what the request may have taken is released in the background. It is another error if no request was sent.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	key, err := check(ctx, keys)
	if err != nil {
		return lease, err
	}
	return s.acquire(ctx, key)
}

// Acquire waits for the key: in this process in the order of arrival, among the processes in any order. The first
// waiter of each process tries again after 1 to 50 ms (locking.Poller).
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if the request
// was in the queue.
func (s *Store) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	key, err := check(ctx, keys)
	if err != nil {
		return lease, err
	}
	return s.poller.Acquire(ctx, []string{key}, func() (locking.Lease, error) { return s.acquire(ctx, key) })
}

// check returns the key, unless keys cannot be acquired under ctx.
func check(ctx context.Context, keys []string) (key string, err error) {
	key, err = locking.OneKey(keys)
	switch {
	case err != nil:
	case inTransaction(ctx):
		err = ErrTransaction
	default:
		err = ctx.Err()
	}
	return key, err
}

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("mongolock: %s %q: %w", operation, keys, *err)
	}
}

// acquire requests the key. While there is no primary, as during an election, it is repeated for at most half the TTL.
func (s *Store) acquire(ctx context.Context, key string) (lease locking.Lease, err error) {
	for deadline := time.Now().Add(s.ttl / 2); ; {
		sent := time.Now()
		lease, err = s.request(ctx, key)
		if !errors.Is(err, errNoServer) || ctx.Err() != nil || sent.Add(s.requestTimeout).After(deadline) {
			return lease, err
		}
	}
}

// request sends the request as one owner until it is answered.
func (s *Store) request(ctx context.Context, key string) (lease locking.Lease, err error) {
	owner := rand.Text() // at least 128 random bits
	err = s.resolver.Acquire(ctx, func() error {
		sent := time.Now() // before the request: the TTL cannot start earlier
		g, err := s.send(ctx, s.collection, take(key, owner, s.ttl))
		if err == nil && g.Owner != owner {
			err = locking.ErrBusy
		}
		lease = locking.Lease{Keys: []string{key}, Owner: owner, Fence: locking.Fence(g.Fence), Until: sent.Add(s.trust)}
		return err
	}, s.removal(key, owner))
	if err != nil {
		return locking.Lease{}, err
	}
	return lease, nil
}

// removal returns a function that frees key, if owner has it.
func (s *Store) removal(key, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.send(ctx, s.collection, request{update: freed, filter: bson.D{{Key: "_id", Value: key}, {Key: "owner", Value: owner}}})
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil // owner does not have it
		}
		return err
	}
}

// Renew restarts the TTL. It returns locking.ErrLost, finally, if the lease no longer
// holds the key; it never takes the key again. After any other error l is as valid as
// before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	sent := time.Now()
	if _, err := s.change(ctx, s.collection, l, prolonged(s.ttl)); err != nil {
		return l, err
	}
	l.Until = sent.Add(s.trust)
	return l, nil
}

// Release frees the key, or passes it to the next waiter of this process. It returns locking.ErrLost if the lease no
// longer held it.
// After locking.ErrOutcomeUnknown the release is retried in the background.
//
// It does not wait for a majority: if the primary fails before it has replicated the release, the lease ends by its TTL.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	return s.poller.Release(l, func() (locking.Lease, error) { return s.pass(ctx, l) }, func() error {
		_, err := s.change(ctx, s.releases, l, freed)
		if errors.Is(err, locking.ErrOutcomeUnknown) {
			s.resolver.Abandon(s.removal(l.Keys[0], l.Owner))
		}
		return err
	})
}

// pass ends l, and makes a lease for the next request of this process. It returns locking.ErrLost if it has done neither.
func (s *Store) pass(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	owner, sent := rand.Text(), time.Now()
	g, err := s.change(ctx, s.collection, l, passed(owner, s.ttl))
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		old, next := s.removal(l.Keys[0], l.Owner), s.removal(l.Keys[0], owner)
		s.resolver.Abandon(func(ctx context.Context) error {
			if err := old(ctx); err != nil { // until then the request may still arrive
				return err
			}
			return next(ctx)
		})
	}
	return locking.Lease{Keys: l.Keys, Owner: owner, Fence: locking.Fence(g.Fence), Until: sent.Add(s.trust)}, err
}

// Close ends the background work and waits for it, at most as long as for one
// answer. It releases no locks.
func (s *Store) Close() { s.resolver.Close() }
