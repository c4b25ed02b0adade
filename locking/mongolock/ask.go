package mongolock

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
)

// question is one findAndModify.
type question struct {
	filter bson.D
	update mongo.Pipeline
	upsert bool
}

// grant is what a document says after it.
type grant struct {
	Owner string `bson:"owner"`
	Fence int64  `bson:"fence"`
}

// now is the server's clock when the request reached it, the same throughout: not
// before it was sent, and not after the write.
const now = "$$NOW"

// after is d from now.
func after(d time.Duration) bson.D {
	return bson.D{{Key: "$add", Value: bson.A{now, d.Milliseconds()}}}
}

// take asks for key. The condition is in the update and not in the filter, so that
// a key that is busy is an answer, and not an insert that meets a duplicate.
//
// All of $set see the document as it was before. What is not there is less than
// any date. Where owner has the key already, the request came before and its answer
// was lost: the grant stands with its fence, only the TTL starts anew.
func take(key, owner string, ttl time.Duration) question {
	free := bson.D{{Key: "$lte", Value: bson.A{"$expires", now}}}
	mine := bson.D{{Key: "$eq", Value: bson.A{"$owner", owner}}}
	next := bson.D{{Key: "$add", Value: bson.A{bson.D{{Key: "$ifNull", Value: bson.A{"$fence", int64(0)}}}, int64(1)}}}
	when := func(condition bson.D, then any, otherwise string) bson.D {
		return bson.D{{Key: "$cond", Value: bson.A{condition, then, otherwise}}}
	}
	return question{
		filter: bson.D{{Key: "_id", Value: key}},
		update: mongo.Pipeline{{{Key: "$set", Value: bson.D{
			{Key: "owner", Value: when(free, owner, "$owner")},
			{Key: "fence", Value: when(free, next, "$fence")},
			{Key: "expires", Value: when(bson.D{{Key: "$or", Value: bson.A{free, mine}}}, after(ttl), "$expires")},
		}}}},
		upsert: true,
	}
}

// prolonged sets the TTL anew.
func prolonged(ttl time.Duration) mongo.Pipeline {
	return mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "expires", Value: after(ttl)}}}}}
}

// freed takes the holder out, and leaves the fence.
var freed = mongo.Pipeline{{{Key: "$unset", Value: bson.A{"owner", "expires"}}}}

// change updates the document of a lease, if it still is that lease's. The fence is
// compared as well as the owner, so that a delayed duplicate of the request to
// acquire cannot bring a grant back.
func (s *Store) change(ctx context.Context, l locking.Lease, update mongo.Pipeline) error {
	if len(l.Keys) != 1 {
		return locking.ErrLost
	}
	_, err := s.ask(ctx, question{update: update, filter: bson.D{
		{Key: "_id", Value: l.Keys[0]},
		{Key: "owner", Value: l.Owner},
		{Key: "fence", Value: int64(l.Fence)},
		{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$expires", now}}}},
	}})
	if errors.Is(err, mongo.ErrNoDocuments) {
		return locking.ErrLost
	}
	return err
}

// ask sends q and waits for requestTimeout at most. The caller's session is left out: it
// is for one goroutine, and a lease is renewed by another.
func (s *Store) ask(ctx context.Context, q question) (g grant, err error) {
	if s.resolver.Closed() {
		return g, ErrClosed
	}
	limited, cancel := context.WithTimeout(mongo.NewSessionContext(ctx, nil), s.requestTimeout)
	defer cancel()
	err = s.collection.FindOneAndUpdate(limited, q.filter, q.update, options.FindOneAndUpdate().
		SetUpsert(q.upsert).
		SetReturnDocument(options.After).
		SetProjection(bson.D{{Key: "owner", Value: 1}, {Key: "fence", Value: 1}})).Decode(&g)
	if end, ok := ctx.Deadline(); ok && err != nil && !time.Now().Before(end) {
		<-ctx.Done() // the driver's timer was faster than that of ctx
	}
	return g, classify(ctx, err)
}

// acknowledged is c with writes that a majority has in its journal: they survive the
// election of another primary, and a restart of all.
func acknowledged(c *mongo.Collection) *mongo.Collection {
	journaled := true
	return c.Clone(options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
}

// classify separates what certainly did not happen from what may have happened.
func classify(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, mongo.ErrNoDocuments) || refused(err) {
		return err
	}
	return locking.NoAnswer(ctx, err)
}

// refused tells that err is the server's answer, and says that nothing was done: not
// the end of a time, nor of a primary, nor a majority that has not answered yet
// (which is a mongo.WriteException: the write is there).
func refused(err error) bool {
	var answer mongo.CommandError
	return errors.As(err, &answer) && answer.Code != 0 &&
		!answer.HasErrorLabel("RetryableWriteError") && !mongo.IsTimeout(err)
}
