package wallet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/idempotency"
)

// KeysKept is the shortest time for which an answer must be replayable.
const KeysKept = 24 * time.Hour

// record is an operation as it is stored: with its key, and the reply to the client.
type record struct {
	Operation   `bson:",inline"`
	Key         string `bson:"key"`
	Fingerprint []byte `bson:"fingerprint"`
	Refused     string `bson:"refused,omitempty"` // why nothing happened
	Status      int    `bson:"status"`
	Body        []byte `bson:"body"`
}

func newRecord(req Request, op Operation, reply Reply, refused string) record {
	r := record{Operation: op, Key: req.Key, Fingerprint: req.Fingerprint[:], Refused: refused, Status: reply.Status, Body: reply.Body}
	if r.Body == nil {
		r.Body = []byte{}
	}
	return r
}

// reply is what was stored, for another request with the same key.
func (r record) reply(req Request) (Reply, error) {
	if string(r.Fingerprint) != string(req.Fingerprint[:]) {
		return Reply{}, idempotency.ErrKeyReused
	}
	return Reply{Status: r.Status, Body: r.Body, Replayed: true}, nil
}

// lookupReply finds the answer that was stored under the request's key. Under the lock
// of a wallet, not found is final for operations on that wallet. A key that is used
// for two wallets at once can be inserted after it: then the second insert fails.
func (s *Service) lookupReply(ctx context.Context, req Request) (reply Reply, found bool, err error) {
	var r record
	err = s.operations.FindOne(ctx, bson.D{{Key: "_id", Value: operationID(req)}}).Decode(&r)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return Reply{}, false, nil
	}
	if err != nil {
		return Reply{}, false, classify("look key up", err)
	}
	reply, err = r.reply(req)
	return reply, err == nil, err
}

// Purge forgets the refusals older than olderThan, at least KeysKept, and says
// how many. A key that comes back after that is a new request. What had an effect
// stays for ever: it is the ledger, and its _id is the key.
func Purge(ctx context.Context, db *mongo.Database, olderThan time.Duration) (int64, error) {
	if olderThan < KeysKept {
		return 0, fmt.Errorf("%w: keys are kept at least %v", ErrInvalid, KeysKept)
	}
	result, err := durable(db).Collection("wallet_operations").DeleteMany(ctx, bson.D{
		{Key: "refused", Value: bson.D{{Key: "$exists", Value: true}}},
		{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{ // by the server's clock, which wrote createdAt
			"$createdAt", bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", olderThan.Milliseconds()}}},
		}}}},
	})
	if err != nil {
		return 0, fmt.Errorf("wallet: purge keys: %w", err)
	}
	return result.DeletedCount, nil
}
