// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Migrate makes the collections, their schemas and their indexes, or brings them up to date.
// It may be repeated, and run by several processes at once. Run it before there is traffic:
// it aborts transactions that are open. No transaction has to make a collection afterwards.
func Migrate(ctx context.Context, db *mongo.Database) error {
	db = durable(db)
	for _, c := range collections() {
		err := db.CreateCollection(ctx, c.name, options.CreateCollection().SetValidator(c.validator()))
		if hasCode(err, namespaceExists) {
			err = db.RunCommand(ctx, bson.D{{Key: "collMod", Value: c.name}, {Key: "validator", Value: c.validator()}}).Err()
		}
		if err != nil {
			return fmt.Errorf("wallet: migrate %s: %w", c.name, err)
		}
		if len(c.indexes) == 0 {
			continue
		}
		if _, err := db.Collection(c.name).Indexes().CreateMany(ctx, c.indexes); err != nil {
			return fmt.Errorf("wallet: migrate indexes of %s: %w", c.name, err)
		}
	}
	return nil
}

// collection is a collection with its schema and indexes.
type collection struct {
	name     string
	required bson.D // property → its schema
	optional bson.D
	indexes  []mongo.IndexModel
}

var (
	isBinary       = bson.D{{Key: "bsonType", Value: "binData"}}
	isText         = bson.D{{Key: "bsonType", Value: "string"}}
	isDate         = bson.D{{Key: "bsonType", Value: "date"}}
	isCurrencyCode = bson.D{{Key: "bsonType", Value: "string"}, {Key: "pattern", Value: "^[A-Z]{3}$"}}
	isWhole        = bson.D{{Key: "bsonType", Value: "long"}}
	isFunds        = bson.D{{Key: "bsonType", Value: "long"}, {Key: "minimum", Value: int64(0)}}
)

// collections is a function and not a variable, because CreateMany writes the names of the
// indexes into their options.
func collections() []collection {
	return []collection{
		{
			name: "wallets",
			required: bson.D{
				{Key: "_id", Value: isBinary},
				{Key: "owner", Value: isBinary},
				{Key: "currency", Value: isCurrencyCode},
				{Key: "opening", Value: isFunds},
				{Key: "balance", Value: isFunds}, // the last guard
				{Key: "lockId", Value: bson.D{{Key: "bsonType", Value: "objectId"}}},
				{Key: "createdAt", Value: isDate},
				{Key: "updatedAt", Value: isDate},
			},
		},
		{
			name: "wallet_entries",
			required: bson.D{
				{Key: "_id", Value: bson.D{{Key: "bsonType", Value: "objectId"}}},
				{Key: "operation", Value: isBinary},
				{Key: "wallet", Value: isBinary},
				{Key: "delta", Value: isWhole},
				{Key: "createdAt", Value: isDate},
			},
			indexes: []mongo.IndexModel{
				{ // an operation touches a wallet once
					Keys:    bson.D{{Key: "operation", Value: 1}, {Key: "wallet", Value: 1}},
					Options: options.Index().SetUnique(true),
				},
				{Keys: bson.D{{Key: "wallet", Value: 1}, {Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}}, // a wallet's latest
			},
		},
		{
			name: "wallet_operations",
			required: bson.D{
				{Key: "_id", Value: isBinary}, // made of client and key: its index is the idempotency
				{Key: "client", Value: isBinary},
				{Key: "key", Value: isText},
				{Key: "fingerprint", Value: isBinary},
				{Key: "kind", Value: bson.D{{Key: "enum", Value: bson.A{Credit, Debit, Pay}}}},
				{Key: "wallet", Value: isBinary},
				{Key: "amount", Value: bson.D{{Key: "bsonType", Value: "long"}, {Key: "minimum", Value: int64(1)}}},
				{Key: "bonus", Value: isFunds},
				{Key: "status", Value: bson.D{{Key: "bsonType", Value: bson.A{"int", "long"}}}},
				{Key: "body", Value: isBinary},
				{Key: "createdAt", Value: isDate},
			},
			optional: bson.D{
				{Key: "to", Value: isBinary},
				{Key: "currency", Value: isCurrencyCode},
				{Key: "refused", Value: isText},
				{Key: "header", Value: bson.D{{Key: "bsonType", Value: "object"}}},
			},
			indexes: []mongo.IndexModel{
				{Keys: bson.D{{Key: "createdAt", Value: 1}}, Options: ofRefusals()},                          // by age, for Purge
				{Keys: bson.D{{Key: "client", Value: 1}, {Key: "refused", Value: 1}}, Options: ofRefusals()}, // for CountKeys
			},
		},
	}
}

// ofRefusals are the options of an index that has the refusals only.
func ofRefusals() *options.IndexOptionsBuilder {
	return options.Index().SetPartialFilterExpression(bson.D{{Key: "refused", Value: bson.D{{Key: "$exists", Value: true}}}})
}

// validator returns the schema: it allows these properties, and no others.
func (c collection) validator() bson.D {
	names := bson.A{}
	for _, p := range c.required {
		names = append(names, p.Key)
	}
	return bson.D{{Key: "$jsonSchema", Value: bson.D{
		{Key: "bsonType", Value: "object"},
		{Key: "required", Value: names},
		{Key: "properties", Value: append(append(bson.D{}, c.required...), c.optional...)},
		{Key: "additionalProperties", Value: false},
	}}}
}
