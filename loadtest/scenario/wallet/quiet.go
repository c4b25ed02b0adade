package wallet

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/loadtest/fault"
)

// waitQuiet returns when no member of the set has a connection left of the clients with
// the name, or with an error when one is left after patience. From then on nothing changes
// in what they wrote to, for all of them are dead:
//
//   - A mongod shows a connection until its thread has ended, which is when it has
//     carried out all that arrived and has read the end. So no command of theirs is
//     waiting, on its way, or running: no commit either.
//   - A transaction of a dead one may stay open, with its locks, until
//     transactionLifetimeLimitSeconds. It is not visible, and only a commit that
//     is sent could change that: the server ends it by an abort.
//   - All members are asked: a primary that was deposed may be one again.
//
// What was committed is there from then on, but perhaps not at a majority yet: the
// next write that a majority acknowledges, at this primary, is behind all of it
// (LoadTold), and so is every snapshot that is read later.
//
// Connections of others do not matter, since the server may have other work to do.
func waitQuiet(ctx context.Context, db *mongo.Database, name string, patience time.Duration) error {
	members, err := mongoMembers(ctx, db)
	defer func() {
		for _, m := range members {
			_ = m.Disconnect(context.WithoutCancel(ctx))
		}
	}()
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		left := 0
		for _, m := range members {
			n, err := connections(ctx, m, name)
			if err != nil {
				return err
			}
			left += n
		}
		switch {
		case left == 0:
			return nil
		case time.Since(began) > patience || !fault.Wait(ctx, 20*time.Millisecond):
			return fmt.Errorf("%d connections are left to MongoDB after %v: it cannot be audited", left, time.Since(began).Round(time.Millisecond))
		}
	}
}

// countClients counts the connections of the replicas. If there were none while they are
// alive, the end of the last one could not be awaited: the run is inconclusive.
func (s *Stores) countClients(ctx context.Context, name string) {
	db, err := mongoDatabase(s.Mongo)
	if err != nil {
		return
	}
	defer func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }()
	n, err := connections(ctx, db.Client(), name)
	if err == nil {
		s.clients = int64(n)
	}
}

// mongoMembers is a client for each member.
func mongoMembers(ctx context.Context, db *mongo.Database) (members []*mongo.Client, err error) {
	var hello struct{ Hosts []string }
	if err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return nil, fmt.Errorf("audit: members: %w", err)
	}
	for _, host := range hello.Hosts {
		m, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + host + "/?directConnection=true").
			SetAppName(auditor).SetTimeout(mongoWait).SetServerSelectionTimeout(mongoWait))
		if err != nil {
			return members, err
		}
		members = append(members, m)
	}
	return members, nil
}

// connections counts those of one member, at work or not. (A transaction without
// a connection is an idle session, and none.)
func connections(ctx context.Context, member *mongo.Client, name string) (int, error) {
	cursor, err := member.Database("admin").Aggregate(ctx, mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleConnections", Value: true}, {Key: "idleSessions", Value: false}}}},
		{{Key: "$match", Value: bson.D{{Key: "appName", Value: name}}}},
	})
	if err != nil {
		return 0, fmt.Errorf("audit: connections: %w", err)
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return 0, fmt.Errorf("audit: connections: %w", err)
	}
	return len(found), nil
}
