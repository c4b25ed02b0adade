// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"shop/locking"
	"shop/locking/driver"
)

// TTLMin is the shortest TTL of a Store: a majority has to answer several times within
// it. A TTL is a whole number of milliseconds, like a date in BSON.
const TTLMin = 100 * time.Millisecond

// ErrTransaction reports a request for a lease inside of a transaction, whose
// snapshot is older than the lease: its data may have changed before the grant.
// Take the lease first, then begin the transaction.
var ErrTransaction = errors.New("mongolock: not inside of a transaction")

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins the _id of each document; empty: none. Stores exclude each other only if they have the same
	// Prefix. End it with a character that no key begins with.
	Prefix string
}

// New makes a Store whose leases last ttl, in a collection that the first lock creates. Stores exclude each other only if they use
// the same collection, which must hold nothing else. The Store sets its own write
// concern and time-outs, whatever the client's are. The caller owns the client.
//
// In this process the requests for a key are granted it in the order of arrival, among the processes in any order: the first
// waiter of each asks again after 2 to 15 ms.
func New(collection *mongo.Collection, ttl time.Duration, o Options) (*driver.Store, error) {
	if err := locking.CheckClient(collection); err != nil {
		return nil, fmt.Errorf("mongolock: %w", err)
	}
	settings := settings(ttl)
	settings.Prefix = o.Prefix
	return driver.New(newLeases(collection, ttl), settings)
}

// settings are those of a Store.
func settings(ttl time.Duration) driver.Options {
	return driver.Options{
		Name: "mongolock", TTL: ttl, TTLMin: TTLMin, TTLUnit: time.Millisecond, OneKey: true,
		Pause: locking.Backoff{Base: 5 * time.Millisecond, Max: 15 * time.Millisecond}, Turn: 20 * time.Millisecond, Gap: 15 * time.Millisecond,
	}
}

// leases is a driver.Driver: each of its requests is one findAndModify.
type leases struct {
	grants   *mongo.Collection // a majority acknowledges its writes
	releases *mongo.Collection // the same collection, whose writes the primary alone acknowledges
	ttl      time.Duration
}

func newLeases(c *mongo.Collection, ttl time.Duration) *leases {
	return &leases{acknowledged(c), c.Clone(options.Collection().SetWriteConcern(writeconcern.W1())), ttl}
}

// Check refuses a request inside of a transaction.
func (m *leases) Check(ctx context.Context) error {
	if inTransaction(ctx) {
		return ErrTransaction
	}
	return nil
}

// Take takes the one key. While there is no primary, as during an election, it is repeated.
func (m *leases) Take(ctx context.Context, keys []string, owner string, _ bool) (driver.Grant, error) {
	g, err := send(ctx, m.grants, take(keys[0], owner, m.ttl))
	if err == nil && g.Owner != owner {
		err = locking.ErrBusy
	}
	return driver.Grant{Fence: locking.Fence(g.Fence)}, err
}

// Keep begins the TTL again.
func (m *leases) Keep(ctx context.Context, l locking.Lease) error {
	return change(ctx, m.grants, l, prolonged(m.ttl))
}

// Free frees the key. It does not wait for a majority: if the primary fails before it has replicated the release, the lease
// ends by its TTL.
func (m *leases) Free(ctx context.Context, l locking.Lease) error {
	if l.Fence > 0 {
		return change(ctx, m.releases, l, freed)
	}
	_, err := send(ctx, m.grants, request{update: freed, filter: bson.D{{Key: "_id", Value: l.Keys[0]}, {Key: "owner", Value: l.Owner}}})
	return err
}

// change updates the document of a lease, if the lease still holds it. The fence is
// compared as well as the owner, so that a delayed duplicate of the request to
// acquire cannot revive a grant.
func change(ctx context.Context, c *mongo.Collection, l locking.Lease, update mongo.Pipeline) error {
	if len(l.Keys) != 1 {
		return locking.ErrLost
	}
	_, err := send(ctx, c, request{update: update, filter: bson.D{
		{Key: "_id", Value: l.Keys[0]},
		{Key: "owner", Value: l.Owner},
		{Key: "fence", Value: int64(l.Fence)},
		{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$expires", now}}}},
	}})
	return err
}

// request is one findAndModify.
type request struct {
	filter bson.D
	update mongo.Pipeline
	upsert bool
}

// grant is the relevant part of the document after it.
type grant struct {
	Owner string `bson:"owner"`
	Fence int64  `bson:"fence"`
}

// now is the server's clock when the request arrived, constant throughout the request.
// It is not before the request was sent, and not after the write.
const now = "$$NOW"

// after is now + d.
func after(d time.Duration) bson.D {
	return bson.D{{Key: "$add", Value: bson.A{now, d.Milliseconds()}}}
}

// take requests key. The condition is in the update and not in the filter, so that for a
// busy key the upsert returns its document, instead of an insert that fails with a
// duplicate key.
//
// All expressions of $set see the document as it was before. A missing field is less
// than any date. If owner already has the key, an earlier request was granted and its
// answer was lost: the grant keeps its fence, and only the TTL restarts.
func take(key, owner string, ttl time.Duration) request {
	free := bson.D{{Key: "$lte", Value: bson.A{"$expires", now}}}
	mine := bson.D{{Key: "$eq", Value: bson.A{"$owner", owner}}}
	next := bson.D{{Key: "$add", Value: bson.A{bson.D{{Key: "$ifNull", Value: bson.A{"$fence", int64(0)}}}, int64(1)}}}
	when := func(condition bson.D, then any, otherwise string) bson.D {
		return bson.D{{Key: "$cond", Value: bson.A{condition, then, otherwise}}}
	}
	return request{
		filter: bson.D{{Key: "_id", Value: key}},
		update: mongo.Pipeline{{{Key: "$set", Value: bson.D{
			{Key: "owner", Value: when(free, owner, "$owner")},
			{Key: "fence", Value: when(free, next, "$fence")},
			{Key: "expires", Value: when(bson.D{{Key: "$or", Value: bson.A{free, mine}}}, after(ttl), "$expires")},
		}}}},
		upsert: true,
	}
}

// prolonged restarts the TTL.
func prolonged(ttl time.Duration) mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "expires", Value: after(ttl)}}}}}
}

// freed removes the holder and keeps the fence.
var freed = mongo.Pipeline{{{Key: "$unset", Value: bson.A{"owner", "expires"}}}}

// send sends q. It does not use the caller's session: that is for one goroutine, and another one renews the lease.
func send(ctx context.Context, c *mongo.Collection, q request) (g grant, err error) {
	err = c.FindOneAndUpdate(mongo.NewSessionContext(ctx, nil), q.filter, q.update, options.FindOneAndUpdate().
		SetUpsert(q.upsert).
		SetReturnDocument(options.After).
		SetProjection(bson.D{{Key: "owner", Value: 1}, {Key: "fence", Value: 1}})).Decode(&g)
	return g, classify(err)
}

// acknowledged returns c with writes that a majority acknowledges with its journal on
// disk. They survive the election of another primary, and a restart of all members.
func acknowledged(c *mongo.Collection) *mongo.Collection {
	journaled := true
	return c.Clone(options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
}

// classify returns the error of a request as a driver.Driver must.
func classify(err error) error {
	var (
		selection topology.ServerSelectionError
		pool      topology.WaitQueueTimeoutError
		answer    mongo.CommandError
	)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return locking.ErrLost
	case errors.Is(err, mongo.ErrClientDisconnected):
		return driver.Unsent(err)
	// The driver had no connection. If it has sent the request before, its error is that of the first time.
	case errors.As(err, &selection), errors.As(err, &pool):
		return driver.Again(err)
	// The server has done nothing. A time-out, the loss of the primary, and a majority that has not acknowledged yet do not say
	// so (the last is a mongo.WriteException: the write is there).
	case errors.As(err, &answer) && answer.Code != 0 && !answer.HasErrorLabel("RetryableWriteError") && !mongo.IsTimeout(err):
		return driver.Refused(err)
	}
	return err
}
