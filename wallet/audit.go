package wallet

import (
	"context"
	"fmt"
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
		var found []struct {
			ID bson.RawValue `bson:"_id"`
		}
		if err := Aggregate(ctx, db, check.From, check.Query, &found); err != nil {
			return nil, err
		}
		for _, f := range found {
			ids = append(ids, idText(f.ID))
		}
		return ids, nil
	}
}

// Aggregate reads all results of a pipeline with read concern snapshot: all collections that it
// names are read at one moment, and as majority-committed.
func Aggregate(ctx context.Context, db *mongo.Database, from, pipeline string, into any) error {
	var stages struct{ Pipeline bson.A }
	if err := bson.UnmarshalExtJSON([]byte(`{"pipeline": [`+pipeline+`]}`), false, &stages); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	moment := options.Collection().SetReadConcern(readconcern.Snapshot()).SetReadPreference(readpref.Primary())
	cursor, err := db.Collection(from, moment).Aggregate(ctx, stages.Pipeline)
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
