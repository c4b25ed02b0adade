// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"shop/locking/invariant"
)

// Pipelines returns a function that runs checks on a database. The Query of a check is the
// stages of an aggregation, as in the shell. The _id of each result breaks the invariant.
func Pipelines(db *mongo.Database) func(context.Context, invariant.Check) ([]string, error) {
	return func(ctx context.Context, check invariant.Check) (ids []string, err error) {
		for after := (bson.D{}); ; {
			var end bson.D // empty: this is the last piece, or the only one
			if check.Pieces {
				if end, err = pieceEnd(ctx, db.Collection(check.From), after); err != nil {
					return nil, err
				}
			}
			var first bson.A
			if within := slices.Concat(after, end); len(within) > 0 {
				first = bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: within}}}}}
			}
			var found []struct {
				ID bson.RawValue `bson:"_id"`
			}
			if err := aggregate(ctx, db, check.From, first, check.Query, &found); err != nil {
				return nil, err
			}
			for _, f := range found {
				ids = append(ids, idText(f.ID))
			}
			if len(end) == 0 {
				return ids, nil
			}
			after = bson.D{{Key: "$gt", Value: end[0].Value}}
		}
	}
}

// pieceMax is how many documents of its first collection a piece of a check reads.
const pieceMax = 1000

// pieceEnd returns the condition {$lte: _id} that ends the piece after after; it is empty for the last piece.
func pieceEnd(ctx context.Context, from *mongo.Collection, after bson.D) (bson.D, error) {
	filter := bson.D{}
	if len(after) > 0 {
		filter = bson.D{{Key: "_id", Value: after}}
	}
	var last struct {
		ID bson.RawValue `bson:"_id"`
	}
	err := from.FindOne(ctx, filter, options.FindOne().
		SetSort(bson.D{{Key: "_id", Value: 1}}).SetSkip(pieceMax-1).SetProjection(bson.D{{Key: "_id", Value: 1}})).Decode(&last)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	return bson.D{{Key: "$lte", Value: last.ID}}, err
}

// Aggregate reads all results of a pipeline with read concern snapshot: all collections that it
// names are read at one moment, and as majority-committed.
func Aggregate(ctx context.Context, db *mongo.Database, from, pipeline string, into any) error {
	return aggregate(ctx, db, from, nil, pipeline, into)
}

// aggregate is Aggregate with stages before the pipeline.
func aggregate(ctx context.Context, db *mongo.Database, from string, first bson.A, pipeline string, into any) error {
	var stages struct{ Pipeline bson.A }
	if err := bson.UnmarshalExtJSON([]byte(`{"pipeline": [`+pipeline+`]}`), false, &stages); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	moment := options.Collection().SetReadConcern(readconcern.Snapshot()).SetReadPreference(readpref.Primary())
	cursor, err := db.Collection(from, moment).Aggregate(ctx, append(first, stages.Pipeline...))
	if err != nil {
		return err
	}
	return cursor.All(ctx, into)
}

// idText formats an _id: a UUID in its usual form, a compound key with spaces between its parts.
func idText(id bson.RawValue) string {
	if text, is := id.StringValueOK(); is {
		return text
	}
	if subtype, data, is := id.BinaryOK(); is && subtype == bson.TypeBinaryUUID && len(data) == len(uuid.UUID{}) {
		return uuid.UUID(data).String()
	}
	parts, is := id.DocumentOK()
	values, err := parts.Values()
	if !is || err != nil {
		return id.String()
	}
	var texts []string
	for _, v := range values {
		texts = append(texts, idText(v))
	}
	return strings.Join(texts, " ")
}
