// SPDX-License-Identifier: MIT

package soak

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Unpurged is the collection to which the wallet flow moves refusals that should have been purged.
const Unpurged = "soak_unpurged"

// Mongo reads the database of the wallets. The clients of the service connect with this appName.
func Mongo(db *mongo.Database, name string) Source {
	return Source{
		Gauges: []Gauge{
			{Name: "MongoDB: connections", From: "$currentOp", Share: 0.1, Slack: 6, Steps: true},
			{Name: "MongoDB: open transactions", From: "serverStatus", Slack: 20, Empty: true},
			{Name: "MongoDB: sessions", From: "serverStatus", Share: 0.5, Slack: 50, Steps: true},
			{Name: "MongoDB: records of transactions", From: "config.transactions", Share: 0.5, Slack: 100, Steps: true},
			{Name: "MongoDB: refused operations", From: "wallet_operations", Share: 0.25, Slack: 30},
		},
		Read: func(ctx context.Context) ([]float64, error) {
			connections, err := mongoConnections(ctx, db.Client(), name)
			if err != nil {
				return nil, err
			}
			var status struct {
				Transactions              struct{ CurrentOpen float64 }
				LogicalSessionRecordCache struct{ ActiveSessionsCount float64 }
			}
			if err := db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
				return nil, err
			}
			records, err := db.Client().Database("config").Collection("transactions").EstimatedDocumentCount(ctx)
			if err != nil {
				return nil, err
			}
			refused, err := db.Collection("wallet_operations").CountDocuments(ctx, bson.D{{Key: "refused", Value: bson.D{{Key: "$exists", Value: true}}}})
			if err != nil {
				return nil, err
			}
			unpurged, err := db.Collection(Unpurged).CountDocuments(ctx, bson.D{})
			return []float64{
				connections, status.Transactions.CurrentOpen, status.LogicalSessionRecordCache.ActiveSessionsCount,
				float64(records), float64(refused + unpurged),
			}, err
		},
	}
}

// mongoConnections counts the connections with an appName, idle ones included.
func mongoConnections(ctx context.Context, client *mongo.Client, name string) (float64, error) {
	cursor, err := client.Database("admin").Aggregate(ctx, mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleConnections", Value: true}, {Key: "idleSessions", Value: false}}}},
		{{Key: "$match", Value: bson.D{{Key: "appName", Value: name}}}},
		{{Key: "$count", Value: "n"}},
	})
	if err != nil {
		return 0, err
	}
	var found []struct{ N float64 }
	if err := cursor.All(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0].N, nil
}
