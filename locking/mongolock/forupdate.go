// SPDX-License-Identifier: MIT

package mongolock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// This file needs no other file of the package, so that it can be copied alone.

// ErrNoTransaction reports a lock that would end with its own statement. Usually ctx is
// the outer one, and not that of the callback of WithTransaction.
var ErrNoTransaction = errors.New("mongolock: ctx carries no running transaction")

// ForUpdate locks the document until the end of the transaction that ctx carries,
// and decodes it, as it is under the lock, into the value that into points to. It must be the
// first statement of the transaction, and the decision must use the document that it returns.
//
// If another transaction has the lock, ForUpdate fails at once, with the label
// TransientTransactionError. Return the error as it is, or wrapped with %w:
// WithTransaction then runs the callback again. A missing document is
// mongo.ErrNoDocuments.
func ForUpdate(ctx context.Context, c *mongo.Collection, id, into any) error {
	if !inTransaction(ctx) {
		return fmt.Errorf("%w: for update %s %v", ErrNoTransaction, c.Name(), id)
	}
	// A write that changes nothing takes no lock, so the lockId has to be new: it is made
	// here, in each attempt. $eq, because an id from outside may be a document, and that
	// could hold an operator.
	err := c.FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "lockId", Value: bson.NewObjectID()}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After),
	).Decode(into)
	if err != nil {
		return fmt.Errorf("mongolock: for update %s %v: %w", c.Name(), id, err)
	}
	return nil
}

// ForUpdateAll is ForUpdate for several documents, in the order of their ids in BSON.
// The order is the same in every transaction, so two that name the same documents
// conflict at the first one, and one of them continues. Duplicate ids are locked once.
func ForUpdateAll[T any, ID comparable](ctx context.Context, c *mongo.Collection, ids []ID) (map[ID]T, error) {
	sorted, err := inOrder(ids)
	if err != nil {
		return nil, err
	}
	all := make(map[ID]T, len(sorted))
	for _, id := range sorted {
		var document T
		if err := ForUpdate(ctx, c, id, &document); err != nil {
			return nil, err
		}
		all[id] = document
	}
	return all, nil
}

// inOrder returns ids without duplicates, sorted by type and bytes of their encoding,
// since not every id type (such as a UUID) has an order in Go.
func inOrder[ID comparable](ids []ID) ([]ID, error) {
	encoded := make(map[ID][]byte, len(ids))
	for _, id := range ids {
		kind, data, err := bson.MarshalValue(id)
		if err != nil {
			return nil, fmt.Errorf("mongolock: id %v: %w", id, err)
		}
		encoded[id] = append([]byte{byte(kind)}, data...)
	}
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b ID) int { return bytes.Compare(encoded[a], encoded[b]) })
	return slices.Compact(sorted), nil
}

func inTransaction(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}
