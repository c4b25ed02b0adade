package mongolock

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"shop/locking"
)

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

// passed makes a lease for another owner.
func passed(owner string, ttl time.Duration) mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$set", Value: bson.D{
		{Key: "owner", Value: owner},
		{Key: "fence", Value: bson.D{{Key: "$add", Value: bson.A{"$fence", int64(1)}}}},
		{Key: "expires", Value: after(ttl)},
	}}}}
}

// prolonged restarts the TTL.
func prolonged(ttl time.Duration) mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "expires", Value: after(ttl)}}}}}
}

// freed removes the holder and keeps the fence.
var freed = mongo.Pipeline{{{Key: "$unset", Value: bson.A{"owner", "expires"}}}}

// change updates the document of a lease, if the lease still holds it. The fence is
// compared as well as the owner, so that a delayed duplicate of the request to
// acquire cannot revive a grant.
func (s *Store) change(ctx context.Context, c *mongo.Collection, l locking.Lease, update mongo.Pipeline) (grant, error) {
	if len(l.Keys) != 1 {
		return grant{}, locking.ErrLost
	}
	g, err := s.send(ctx, c, request{update: update, filter: bson.D{
		{Key: "_id", Value: l.Keys[0]},
		{Key: "owner", Value: l.Owner},
		{Key: "fence", Value: int64(l.Fence)},
		{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$expires", now}}}},
	}})
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = locking.ErrLost
	}
	return g, err
}

// send sends q and waits for requestTimeout at most. It does not use the caller's session:
// that is for one goroutine, and another one renews the lease.
func (s *Store) send(ctx context.Context, c *mongo.Collection, q request) (g grant, err error) {
	if s.resolver.Closed() {
		return g, ErrClosed
	}
	limited, cancel := context.WithTimeout(mongo.NewSessionContext(ctx, nil), s.requestTimeout)
	defer cancel()
	err = c.FindOneAndUpdate(limited, q.filter, q.update, options.FindOneAndUpdate().
		SetUpsert(q.upsert).
		SetReturnDocument(options.After).
		SetProjection(bson.D{{Key: "owner", Value: 1}, {Key: "fence", Value: 1}})).Decode(&g)
	if end, ok := ctx.Deadline(); ok && err != nil && !time.Now().Before(end) {
		<-ctx.Done() // the driver's timer fired before the one of ctx
	}
	return g, classify(ctx, err)
}

// acknowledged returns c with writes that a majority acknowledges with its journal on
// disk. They survive the election of another primary, and a restart of all members.
func acknowledged(c *mongo.Collection) *mongo.Collection {
	journaled := true
	return c.Clone(options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
}

// classify returns locking.ErrOutcomeUnknown for a request that may have taken effect.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, mongo.ErrNoDocuments), refused(err):
		return err
	case errors.Is(err, mongo.ErrClientDisconnected):
		return locking.Unsent(ctx, err)
	case unsent(err):
		return locking.Like(errNoServer, locking.Unsent(ctx, err))
	}
	return locking.NoAnswer(ctx, err)
}

// errNoServer reports a request that was not sent: no primary was found in time, or no connection to it.
var errNoServer = errors.New("mongolock: no server")

// unsent reports whether the driver had no connection. If it has sent the request before, its error is that of the first time.
func unsent(err error) bool {
	var (
		selection topology.ServerSelectionError
		pool      topology.WaitQueueTimeoutError
	)
	return errors.As(err, &selection) || errors.As(err, &pool)
}

// refused reports whether err is the server's answer that nothing was done. A time-out,
// the loss of the primary, and a majority that has not acknowledged yet are not (the
// last is a mongo.WriteException: the write is there).
func refused(err error) bool {
	var answer mongo.CommandError
	return errors.As(err, &answer) && answer.Code != 0 &&
		!answer.HasErrorLabel("RetryableWriteError") && !mongo.IsTimeout(err)
}
