package loadtest

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
)

// MongoCheck is a Check in MongoDB: one aggregate that returns, as _id, whatever
// breaks an invariant. It runs with read concern snapshot, so that it sees one
// moment of all collections that it names, one that a majority has.
type MongoCheck struct {
	Name      string
	Invariant string
	Means     string // what a document of the result is
	From      string // collection
	Pipeline  string // as in the shell
}

// AuditMongo runs the checks and puts together what belongs to one invariant.
func AuditMongo(ctx context.Context, db *mongo.Database, checks []MongoCheck) (Findings, error) {
	broken := map[string][]string{}
	for _, check := range checks {
		var found []struct {
			ID bson.RawValue `bson:"_id"`
		}
		if err := aggregate(ctx, db, check.From, check.Pipeline, &found); err != nil {
			return nil, fmt.Errorf("audit %s: %w", check.Name, err)
		}
		ids := broken[check.Invariant]
		for _, f := range found {
			ids = append(ids, idText(f.ID))
		}
		broken[check.Invariant] = ids
	}
	return newFindings(broken), nil
}

// aggregate reads all that a pipeline returns, at one moment.
func aggregate(ctx context.Context, db *mongo.Database, from, pipeline string, into any) error {
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

// idText is an _id for people: a UUID as it is written, a key of several parts
// with spaces between them.
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

// uuidValue is a UUID as MongoDB keeps it.
func uuidValue(id uuid.UUID) bson.Binary {
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}
}
