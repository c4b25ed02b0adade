package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/locktest"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

var anyStore = locktest.Any[*Store]

func grantsHeldKeys(s *Store) locking.Store { return locktest.GrantsHeldKeys(s, s.ttl) }

func trustsFromTheAnswer(s *Store) locking.Store { return locktest.TrustsFromTheAnswer(s, s.trust) }

func renames(encode func(string) string) func(*Store) locking.Store {
	return func(s *Store) locking.Store { return locktest.Renames(s, encode) }
}

// document is the filter for the document of a lease, which alone is too weak, and more.
func document(l locking.Lease, more ...bson.E) bson.D {
	key := "nothing"
	if len(l.Keys) > 0 {
		key = l.Keys[0]
	}
	return append(bson.D{{Key: "_id", Value: key}}, more...)
}

// sent sends q and returns its error, ErrLost if no document matched.
func (s *Store) sent(ctx context.Context, q request) error {
	_, err := s.send(ctx, s.collection, q)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return locking.ErrLost
	}
	return err
}

func releasesOthers(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Free: func(ctx context.Context, l locking.Lease) error {
		return s.sent(ctx, request{filter: document(l), update: freed})
	}}
}

// releaseDeletes keeps the collection small, but deletes the fence.
func releaseDeletes(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Free: func(ctx context.Context, l locking.Lease) error {
		deleted, err := s.collection.DeleteOne(ctx, document(l, bson.E{Key: "owner", Value: l.Owner}))
		if err == nil && deleted.DeletedCount == 0 {
			err = locking.ErrLost
		}
		return err
	}}
}

// renews makes a store that prolongs the document that q finds.
func renews(q func(locking.Lease) request) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return locktest.Twisted{Store: s, Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			sent, request := time.Now(), q(l)
			request.update = prolonged(s.ttl)
			if err := s.sent(ctx, request); err != nil {
				return l, err
			}
			l.Until = sent.Add(s.trust)
			return l, nil
		}}
	}
}

func renewsOthers(s *Store) locking.Store {
	return renews(func(l locking.Lease) request { return request{filter: document(l)} })(s)
}

func renewsExpired(s *Store) locking.Store {
	return renews(func(l locking.Lease) request {
		return request{filter: document(l, bson.E{Key: "owner", Value: l.Owner})}
	})(s)
}

// renewTakesAgain hides that there was another holder in between.
func renewTakesAgain(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
		sent := time.Now()
		g, err := s.send(ctx, s.collection, take(l.Keys[0], l.Owner, s.ttl))
		if err == nil && g.Owner != l.Owner {
			err = locking.ErrLost
		}
		l.Until = sent.Add(s.trust)
		return l, err
	}}
}

func renewDoesNothing(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Keep: func(_ context.Context, l locking.Lease) (locking.Lease, error) {
		l.Until = time.Now().Add(s.trust)
		return l, nil
	}}
}

// grants makes a store that requests a key itself, with a new owner in each round.
func grants(rounds int, ttl func(*Store) time.Duration) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return locktest.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (l locking.Lease, err error) {
			for range rounds {
				sent, owner := time.Now(), rand.Text()
				g, err := s.send(ctx, s.collection, take(keys[0], owner, ttl(s)))
				if err == nil && g.Owner != owner {
					return l, locking.ErrBusy
				}
				if err == nil {
					return locking.Lease{Keys: keys, Owner: owner, Fence: locking.Fence(g.Fence), Until: sent.Add(s.trust)}, nil
				}
			}
			return l, locking.ErrOutcomeUnknown
		}}
	}
}

// passes makes a store that passes its keys on with the request that q makes for a lease and the next owner.
func passes(q func(s *Store, l locking.Lease, owner string) request) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		free := func(ctx context.Context, l locking.Lease) error {
			return s.poller.Release(l, func() (locking.Lease, error) {
				sent, owner := time.Now(), rand.Text()
				g, err := s.send(ctx, s.collection, q(s, l, owner))
				if errors.Is(err, mongo.ErrNoDocuments) {
					err = locking.ErrLost
				}
				return locking.Lease{Keys: l.Keys, Owner: owner, Fence: locking.Fence(g.Fence), Until: sent.Add(s.trust)}, err
			}, func() error { return s.Release(ctx, l) })
		}
		return locktest.TwistedWaiter{
			Twisted: locktest.Twisted{Store: s, Free: free},
			Wait:    func(ctx context.Context, keys []string) (locking.Lease, error) { return s.Acquire(ctx, keys...) },
		}
	}
}

// without removes a field from what passed sets.
func without(field string) func(s *Store, l locking.Lease, owner string) request {
	return func(s *Store, l locking.Lease, owner string) request {
		update := passed(owner, s.ttl)
		set := update[0][0].Value.(bson.D)
		set = slices.DeleteFunc(set, func(e bson.E) bool { return e.Key == field })
		return request{
			filter: document(l, bson.E{Key: "owner", Value: l.Owner}),
			update: mongo.Pipeline{{{Key: "$set", Value: set}}},
		}
	}
}

func passesOthers(s *Store) locking.Store {
	return passes(func(s *Store, l locking.Lease, owner string) request {
		return request{filter: document(l), update: passed(owner, s.ttl)}
	})(s)
}

func neverExpires(s *Store) locking.Store {
	return grants(1, func(*Store) time.Duration { return time.Hour })(s)
}

// newOwners does not recognize its own lock after a lost answer.
func newOwners(s *Store) locking.Store {
	return grants(4, func(s *Store) time.Duration { return s.ttl })(s)
}
