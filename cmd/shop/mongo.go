// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"shop/wallet"
)

// stores are the databases that commands share.
type stores struct {
	database      `embed:""`
	mongoSettings `embed:""`
}

// Validate is called by kong.
func (s *stores) Validate() error {
	return errors.Join(s.database.Validate(), s.mongoSettings.validate())
}

// mongoSettings locate the wallets.
type mongoSettings struct {
	MongoURL string `name:"mongo-url" env:"SHOP_MONGO_URL" placeholder:"URL" help:"MongoDB replica set and database, as in mongodb://host:27017/shop?replicaSet=rs0. Without it there are no wallets. MongoDB may start after the shop; mongodb+srv:// needs an answer of DNS at the start."`
}

func (s mongoSettings) validate() error {
	if s.MongoURL == "" {
		return nil
	}
	if err := checkURL("--mongo-url", s.MongoURL); err != nil {
		return err
	}
	if _, err := wallet.ClientOptions(s.MongoURL); err != nil {
		return fmt.Errorf("--mongo-url: %w", err)
	}
	if s.name() == "" {
		return errors.New("--mongo-url names no database: add its name after the hosts, as in mongodb://127.0.0.1:27017/shop?replicaSet=rs0")
	}
	return nil
}

// name returns the name of the database, or "" if the URL has none.
func (s mongoSettings) name() string {
	parsed, err := connstring.Parse(s.MongoURL)
	if err != nil {
		return ""
	}
	return parsed.Database
}

// connect makes a client. It connects at its first use.
func (s mongoSettings) connect(more ...*options.ClientOptions) (*mongo.Database, error) {
	o, err := wallet.ClientOptions(s.MongoURL)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--mongo-url: %w", err)}
	}
	if o.AppName == nil { // shown in the server's log and in currentOp
		o.SetAppName("shop")
	}
	o.SetLoggerOptions(options.Logger().SetSink(mongoLog{slog.Default()}))
	client, err := mongo.Connect(append([]*options.ClientOptions{o}, more...)...)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--mongo-url: %w", err)}
	}
	return client.Database(s.name()), nil
}

// connectIfAny returns nil without a URL.
func (s mongoSettings) connectIfAny() (*mongo.Database, error) {
	if s.MongoURL == "" {
		return nil, nil
	}
	return s.connect()
}

// disconnect closes the client of db, if there is one.
func disconnect(db *mongo.Database) {
	if db == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = db.Client().Disconnect(ctx)
}

// openWallets opens the database and checks it, for commands that use it once. It returns
// nil without a URL.
func (s mongoSettings) openWallets(ctx context.Context) (*mongo.Database, error) {
	db, err := s.connectIfAny()
	if db == nil || err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	if err := checkCollections(ctx, db); err != nil {
		disconnect(db)
		return nil, unusable(err)
	}
	return db, nil
}

// unusable adds advice to an error.
func unusable(err error) error {
	if errors.Is(err, errNoCollections) || errors.Is(err, errNoSet) {
		return &usageError{err}
	}
	return &usageError{fmt.Errorf("%w\nis it running, and is --mongo-url (SHOP_MONGO_URL) right?", err)}
}

var errNoCollections = errors.New("the database lacks the collections of wallets; run: shop migrate")

var errNoSet = errors.New("MongoDB is no replica set, and transactions need one, also of one member: start mongod with --replSet rs0, and run once: mongosh --eval 'rs.initiate()'")

// checkCollections reports a server without transactions and missing collections, as checkMigrated reports missing tables. It
// reads from the primary.
func checkCollections(ctx context.Context, db *mongo.Database) error {
	var server struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	switch err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&server); {
	case err != nil:
		return fmt.Errorf("MongoDB does not answer: %w", err)
	case server.SetName == "" && server.Msg != "isdbgrid": // that of a mongos
		return errNoSet
	}
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: "wallet_operations"}}) // migrate creates it last
	switch {
	case err != nil:
		return fmt.Errorf("MongoDB does not answer: %w", err)
	case len(names) == 0:
		return errNoCollections
	}
	return nil
}
