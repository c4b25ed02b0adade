// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/idempotency"
)

// KeysKept is the minimum time for which an answer can be replayed.
const KeysKept = 24 * time.Hour

// record is an operation as it is stored: with its key, and the reply to the client.
type record struct {
	Operation   `bson:",inline"`
	Key         string            `bson:"key"`
	Fingerprint []byte            `bson:"fingerprint"`
	Refused     string            `bson:"refused,omitempty"` // the reason, if it is a refusal
	Status      int               `bson:"status"`
	Body        []byte            `bson:"body"`
	Header      map[string]string `bson:"header,omitempty"`
}

func newRecord(req Request, op Operation, reply Reply, refused string) record {
	r := record{Operation: op, Key: req.Key, Fingerprint: req.Fingerprint[:], Refused: refused, Status: reply.Status, Body: reply.Body, Header: reply.Header}
	if r.Body == nil {
		r.Body = []byte{}
	}
	return r
}

// reply returns the stored reply to a repetition with the same key.
func (r record) reply(req Request) (Reply, error) {
	if string(r.Fingerprint) != string(req.Fingerprint[:]) {
		return Reply{}, idempotency.ErrKeyReused
	}
	return Reply{Status: r.Status, Body: r.Body, Header: r.Header, Replayed: true}, nil
}

// lookupReply finds the answer that is stored under the request's key. Under the lock of a
// wallet, "not found" is final for operations on that wallet. If a key is used for two wallets
// at once, an operation on the other one may still store it: then the second insert fails.
func (s *Service) lookupReply(ctx context.Context, req Request) (reply Reply, found bool, err error) {
	var r record
	err = s.operations.FindOne(ctx, bson.D{{Key: "_id", Value: operationID(req)}}).Decode(&r)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return Reply{}, false, nil
	}
	if err != nil {
		return Reply{}, false, classify("look up the key", err)
	}
	reply, err = r.reply(req)
	return reply, err == nil, err
}

// CountKeys counts the stored refusals of a client, up to limit: the keys that Purge will delete. It reads an index alone.
func (s *Service) CountKeys(ctx context.Context, client uuid.UUID, limit int64) (int64, error) {
	n, err := s.operations.CountDocuments(ctx, bson.D{
		{Key: "client", Value: client},
		{Key: "refused", Value: bson.D{{Key: "$gt", Value: ""}}}, // a range of the index; $exists would read each document
	}, options.Count().SetLimit(limit))
	return n, classify("count the keys", err)
}

// HasKey reports whether an answer is stored under the key, be it for this request or for another one.
func (s *Service) HasKey(ctx context.Context, req Request) (bool, error) {
	_, found, err := s.lookupReply(ctx, req)
	if errors.Is(err, idempotency.ErrKeyReused) {
		return true, nil
	}
	return found, toPublic(ctx, err)
}

// Purge deletes the refusals older than olderThan, at least KeysKept, and returns how many it
// deleted. A request with the key of one is then new. Operations that had an effect are kept
// for ever: they are the ledger, and their _id is made of the key.
func Purge(ctx context.Context, db *mongo.Database, olderThan time.Duration) (purged int64, err error) {
	if olderThan < KeysKept {
		return 0, fmt.Errorf("%w: keys are kept at least %v", ErrInvalid, KeysKept)
	}
	for {
		n, more, err := purgePage(ctx, durable(db).Collection("wallet_operations"), olderThan)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("wallet: purge keys: %w", err)
		}
		if !more {
			return purged, nil
		}
	}
}

// purgeMax is how many refusals a statement deletes, and purgeLimit bounds a page of them. No client waits for it: while other
// work keeps the server busy, it may take longer than ClientTimeout.
const (
	purgeMax   = 200
	purgeLimit = time.Minute
)

// purgePage deletes the oldest refusals. There are more unless it found less than a page.
func purgePage(ctx context.Context, operations *mongo.Collection, olderThan time.Duration) (purged int64, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, purgeLimit)
	defer cancel()
	old := bson.D{
		{Key: "refused", Value: bson.D{{Key: "$exists", Value: true}}},
		{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{ // by the server's clock, which wrote createdAt
			"$createdAt", bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", olderThan.Milliseconds()}}},
		}}}},
	}
	cursor, err := operations.Find(ctx, old, options.Find().
		SetSort(bson.D{{Key: "createdAt", Value: 1}}).SetLimit(purgeMax).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return 0, false, err
	}
	var page []struct {
		ID bson.RawValue `bson:"_id"`
	}
	if err := cursor.All(ctx, &page); err != nil || len(page) == 0 {
		return 0, false, err
	}
	ids := make(bson.A, 0, len(page))
	for _, p := range page {
		ids = append(ids, p.ID)
	}
	// Since then another process may have deleted one, and a request have used its key again.
	// Without the hint MongoDB takes the index of the page, where these are the first, and goes on through all that is old.
	result, err := operations.DeleteMany(ctx, append(old, bson.E{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}),
		options.DeleteMany().SetHint(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return 0, false, err
	}
	return result.DeletedCount, len(page) == purgeMax, nil
}
