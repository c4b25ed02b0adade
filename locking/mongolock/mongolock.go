package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
)

var _ locking.Store = (*Store)(nil)

// TTLMin is the shortest TTL of a Store: within it a majority has to answer
// several times. A TTL is a whole number of milliseconds, as a date in BSON is.
const TTLMin = 100 * time.Millisecond

var (
	// ErrOneKey tells that several keys were asked for in one lease.
	ErrOneKey = errors.New("mongolock: a lease has one key")
	// ErrTransaction tells that a lease was asked for inside of a transaction, whose
	// snapshot is older than the lease: what it reads may have changed before the
	// grant. Take the lease first, then begin.
	ErrTransaction = errors.New("mongolock: not inside of a transaction")
	// ErrClosed is returned by a Store after its Close.
	ErrClosed = errors.New("mongolock: store is closed")
)

// Store keeps locks in a collection, which is made by the first of them. It is
// safe for use by many goroutines. The client stays the caller's.
type Store struct {
	collection     *mongo.Collection
	ttl            time.Duration
	trust          time.Duration // of the TTL, how much to believe in: the rest is for clocks that drift
	requestTimeout time.Duration // for one answer
	resolver       *locking.Resolver
}

// New makes a Store whose leases last ttl. Stores exclude each other only if they
// have the same collection; it holds nothing else. Write concern and time-outs are
// the Store's own, whatever the client's are.
func New(collection *mongo.Collection, ttl time.Duration) (*Store, error) {
	if ttl < TTLMin || ttl%time.Millisecond != 0 {
		return nil, fmt.Errorf("mongolock: TTL %v: must be whole milliseconds, at least %v: it is not rounded", ttl, TTLMin)
	}
	return &Store{
		collection:     acknowledged(collection),
		ttl:            ttl,
		trust:          ttl - margin(ttl),
		requestTimeout: requestTimeout(ttl),
		resolver:       locking.NewResolver(ttl, requestTimeout(ttl)),
	}, nil
}

// margin is what Until leaves of a TTL: one part in a hundred for clocks that run
// at different rates, and 2 ms because dates are whole milliseconds.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// requestTimeout is how long one answer is waited for: several fit into the half TTL
// in which TryAcquire asks again.
func requestTimeout(ttl time.Duration) time.Duration { return ttl / 6 }

// TryAcquire takes the key. It returns locking.ErrBusy if another holder has it.
//
// An answer that does not come is asked for again, as the same owner, for at most
// half the TTL. If it never comes, or ctx ends first, the error is
// locking.ErrOutcomeUnknown, and what the request may have taken is given back in
// the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	keys, err := locking.SortedKeys(keys)
	if err != nil {
		return locking.Lease{}, err
	}
	switch {
	case len(keys) > 1:
		err = ErrOneKey
	case inTransaction(ctx):
		err = ErrTransaction
	default:
		err = ctx.Err()
	}
	if err != nil {
		return locking.Lease{}, fmt.Errorf("acquire %q: %w", keys, err)
	}
	lease, err := s.acquire(ctx, keys[0])
	if err != nil {
		return locking.Lease{}, fmt.Errorf("mongolock: acquire %q: %w", keys, err)
	}
	return lease, nil
}

// acquire asks as one owner until it is answered.
func (s *Store) acquire(ctx context.Context, key string) (lease locking.Lease, err error) {
	owner := rand.Text() // at least 128 random bits
	err = s.resolver.Acquire(ctx, func() error {
		sent := time.Now() // before the request: the TTL cannot start earlier
		g, err := s.ask(ctx, take(key, owner, s.ttl))
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

// removal frees what owner may have taken.
func (s *Store) removal(key, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.ask(ctx, question{update: freed, filter: bson.D{{Key: "_id", Value: key}, {Key: "owner", Value: owner}}})
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil // it has nothing
		}
		return err
	}
}

// Renew sets the TTL anew. It returns locking.ErrLost, finally, if the key is not
// under this lease any more; it never takes it again. After any other error l is
// as good as before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	sent := time.Now()
	if err := s.change(ctx, l, prolonged(s.ttl)); err != nil {
		return l, fmt.Errorf("mongolock: renew %q: %w", l.Keys, err)
	}
	l.Until = sent.Add(s.trust)
	return l, nil
}

// Release gives the key back. It returns locking.ErrLost if it was not under this
// lease any more. After locking.ErrOutcomeUnknown it goes on trying in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) error {
	err := s.change(ctx, l, freed)
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		s.resolver.Abandon(s.removal(l.Keys[0], l.Owner))
	}
	if err != nil {
		return fmt.Errorf("mongolock: release %q: %w", l.Keys, err)
	}
	return nil
}

// Close ends the background work and waits for it, at most as long as for one
// answer. Locks stay as they are.
func (s *Store) Close() { s.resolver.Close() }
