// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/mongolock"
)

func mongoDatabase() (*mongo.Database, func(), error) {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("SHOP_MONGO_URL")).SetTimeout(ttl))
	if err != nil {
		return nil, nil, err
	}
	return client.Database("bench"), func() { _ = client.Disconnect(context.Background()) }, nil
}

func openMongolock(ctx context.Context) (locker, error) {
	database, end, err := mongoDatabase()
	if err != nil {
		return nil, err
	}
	s, err := mongolock.New(database.Collection("locks"), ttl, mongolock.Options{})
	if err != nil {
		return nil, err
	}
	return store(s, func() { s.Close(); end() }), nil
}

// openDocument is a lock as it is usually written: one upsert to take, which the unique _id refuses to all but one, one
// update to release, both acknowledged by a majority, and a wait between two attempts.
func openDocument(context.Context) (locker, error) {
	database, end, err := mongoDatabase()
	if err != nil {
		return nil, err
	}
	locks := database.Collection("documents")
	return locked{func(ctx context.Context, key string) (func() error, error) {
		owner, whole := rand.Text(), context.WithoutCancel(ctx) // the driver refuses to send a request for which too little time is left
		for {
			now := time.Now()
			_, err := locks.UpdateOne(whole, bson.M{"_id": key, "expires": bson.M{"$lt": now}},
				bson.M{"$set": bson.M{"owner": owner, "expires": now.Add(ttl)}}, options.UpdateOne().SetUpsert(true))
			if !mongo.IsDuplicateKeyError(err) {
				return func() error {
					_, err := locks.UpdateOne(whole, bson.M{"_id": key, "owner": owner}, bson.M{"$set": bson.M{"expires": time.Time{}}})
					return err
				}, err
			}
			if err := pause(ctx, retryEvery); err != nil {
				return nil, err
			}
		}
	}, end}, nil
}

// mongoOperations adds the operations that the server has done for clients.
func mongoOperations(ctx context.Context) (sum float64, err error) {
	database, end, err := mongoDatabase()
	if err != nil {
		return 0, err
	}
	defer end()
	var status struct {
		Opcounters struct{ Insert, Query, Update, Delete, Command float64 }
	}
	err = database.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
	o := status.Opcounters
	return o.Insert + o.Query + o.Update + o.Delete + o.Command, err
}
