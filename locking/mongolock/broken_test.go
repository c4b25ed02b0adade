// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/locking"
	"shop/locking/driver"
)

// The drivers in this file are wrong on purpose: the contract has to refuse them.

// twisted is a driver in which the functions that are not nil replace methods.
type twisted struct {
	*leases
	take func(ctx context.Context, keys []string, owner string) (driver.Grant, error)
	keep func(context.Context, locking.Lease) error
	free func(context.Context, locking.Lease) error
}

func (d twisted) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	if d.take == nil {
		return d.leases.Take(ctx, keys, owner, wait)
	}
	return d.take(ctx, keys, owner)
}

func (d twisted) Keep(ctx context.Context, l locking.Lease) error {
	if d.keep == nil {
		return d.leases.Keep(ctx, l)
	}
	return d.keep(ctx, l)
}

func (d twisted) Free(ctx context.Context, l locking.Lease) error {
	if d.free == nil {
		return d.leases.Free(ctx, l)
	}
	return d.free(ctx, l)
}

// document is the filter for the document of a lease, which alone is too weak, and more.
func document(l locking.Lease, more ...bson.E) bson.D {
	return append(bson.D{{Key: "_id", Value: l.Keys[0]}}, more...)
}

// grantsHeldKeys takes the key from its holder.
func grantsHeldKeys(m *leases) driver.Driver {
	return twisted{leases: m, take: func(ctx context.Context, keys []string, owner string) (driver.Grant, error) {
		q := take(keys[0], owner, m.ttl)
		q.update[0][0].Value = bson.D{{Key: "owner", Value: owner}, {Key: "fence", Value: int64(1)}, {Key: "expires", Value: after(m.ttl)}}
		g, err := send(ctx, m.grants, q)
		return driver.Grant{Fence: locking.Fence(g.Fence)}, err
	}}
}

func releasesOthers(m *leases) driver.Driver {
	return twisted{leases: m, free: func(ctx context.Context, l locking.Lease) error {
		_, err := send(ctx, m.grants, request{filter: document(l), update: freed})
		return err
	}}
}

// releaseDeletes keeps the collection small, but deletes the fence.
func releaseDeletes(m *leases) driver.Driver {
	return twisted{leases: m, free: func(ctx context.Context, l locking.Lease) error {
		deleted, err := m.grants.DeleteOne(ctx, document(l, bson.E{Key: "owner", Value: l.Owner}))
		if err == nil && deleted.DeletedCount == 0 {
			err = locking.ErrLost
		}
		return err
	}}
}

// renews prolongs the document that a filter finds.
func renews(m *leases, filter func(locking.Lease) bson.D) driver.Driver {
	return twisted{leases: m, keep: func(ctx context.Context, l locking.Lease) error {
		_, err := send(ctx, m.grants, request{filter: filter(l), update: prolonged(m.ttl)})
		return err
	}}
}

func renewsOthers(m *leases) driver.Driver {
	return renews(m, func(l locking.Lease) bson.D { return document(l) })
}

func renewsExpired(m *leases) driver.Driver {
	return renews(m, func(l locking.Lease) bson.D { return document(l, bson.E{Key: "owner", Value: l.Owner}) })
}

// renewTakesAgain hides that there was another holder in between.
func renewTakesAgain(m *leases) driver.Driver {
	return twisted{leases: m, keep: func(ctx context.Context, l locking.Lease) error {
		_, err := m.Take(ctx, l.Keys, l.Owner, false)
		return err
	}}
}

func renewDoesNothing(m *leases) driver.Driver {
	return twisted{leases: m, keep: func(context.Context, locking.Lease) error { return nil }}
}

func neverExpires(m *leases) driver.Driver {
	return twisted{leases: m, take: func(ctx context.Context, keys []string, owner string) (driver.Grant, error) {
		return newLeases(m.grants, time.Hour).Take(ctx, keys, owner, false)
	}}
}

// newOwners does not recognize its own lock after a lost answer: each request has another owner.
func newOwners(m *leases) driver.Driver {
	var owners sync.Map
	named := func(l locking.Lease) locking.Lease {
		if owner, known := owners.Load(l.Owner); known {
			l.Owner = owner.(string)
		}
		return l
	}
	return twisted{
		leases: m,
		take: func(ctx context.Context, keys []string, owner string) (driver.Grant, error) {
			own := rand.Text()
			owners.Store(owner, own)
			return m.Take(ctx, keys, own, false)
		},
		keep: func(ctx context.Context, l locking.Lease) error { return m.Keep(ctx, named(l)) },
		free: func(ctx context.Context, l locking.Lease) error { return m.Free(ctx, named(l)) },
	}
}
