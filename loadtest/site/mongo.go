// SPDX-License-Identifier: MIT

package site

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Mongo is the private MongoDB database of a scenario, with a connection of the audit.
type Mongo struct {
	*mongo.Database
	URL string // its clients have the name of the database as appName: see WaitQuiet
}

const (
	auditor   = "loadtest"       // appName of this package's own connections to MongoDB
	mongoWait = 15 * time.Second // longer than an election
)

// mongoURL splits a mongodb:// URL, which may have several hosts; net/url does not support that.
var mongoURL = regexp.MustCompile(`^(mongodb(?:\+srv)?://[^/?]+)(?:/[^/?]*)?(\?.*)?$`)

// OpenMongo connects to a database on a server.
func OpenMongo(server, name string) (*Mongo, error) {
	at, err := withMongoDatabase(server, name)
	if err != nil {
		return nil, err
	}
	client, err := connect(at)
	if err != nil {
		return nil, err
	}
	return &Mongo{client.Database(name), at}, nil
}

func withMongoDatabase(server, name string) (string, error) {
	part := mongoURL.FindStringSubmatch(server)
	if part == nil {
		return "", fmt.Errorf("not a mongodb:// URL: %q", server)
	}
	options := "?"
	if part[2] != "" {
		options = part[2] + "&"
	}
	return part[1] + "/" + name + options + "appName=" + name, nil
}

func connect(at string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(at).SetAppName(auditor).SetTimeout(mongoWait).SetServerSelectionTimeout(mongoWait))
}

// Close ends the connection, and removes the database unless it is kept, also when ctx has ended.
func (m *Mongo) Close(ctx context.Context, keep bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mongoWait)
	defer cancel()
	if !keep {
		_ = m.Drop(ctx)
	}
	_ = m.Client().Disconnect(ctx)
}

// WaitQuiet waits until no member of the set has a connection with the database's appName, or returns
// an error if one is left after the limit. These clients are dead then, and the collections
// that they wrote to no longer change:
//
//   - A mongod shows a connection until its thread has ended, which is after it has
//     executed everything that arrived and has read the end of the stream. Therefore no
//     command of these clients is queued, under way or running, and no commit either.
//   - A transaction of a dead client may stay open, with its locks, until
//     transactionLifetimeLimitSeconds. Its writes are invisible, and only a commit
//     could change that: the server ends the transaction by an abort.
//   - All members are queried, since a deposed primary may become the primary again.
//
// From then on all commits are present, but perhaps not yet at a majority. The next
// write at this primary that a majority acknowledges comes after all of them, and so does every
// snapshot that is read later.
//
// Connections of other clients do not matter, since the server may be shared.
func (m *Mongo) WaitQuiet(ctx context.Context, limit time.Duration) error {
	members, err := m.members(ctx)
	defer disconnect(ctx, members)
	if err != nil {
		return err
	}
	return WaitNone(ctx, limit, "connections are left to MongoDB", func() (left int64, err error) {
		for _, member := range members {
			n, err := connections(ctx, member, m.Name())
			if err != nil {
				return 0, err
			}
			left += n
		}
		return left, nil
	})
}

// Clients counts the connections of the replicas to the primary.
func (m *Mongo) Clients(ctx context.Context) (int64, error) {
	return connections(ctx, m.Client(), m.Name())
}

// Figures counts the connections of the replicas to all members, and the open transactions, which hold locks.
func (m *Mongo) Figures(ctx context.Context) (open, transactions int64, err error) {
	members, err := m.members(ctx)
	defer disconnect(ctx, members)
	if err != nil {
		return 0, 0, err
	}
	for _, member := range members {
		n, err := connections(ctx, member, m.Name())
		if err != nil {
			return 0, 0, err
		}
		var status struct{ Transactions struct{ CurrentOpen int64 } }
		if err := member.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
			return 0, 0, err
		}
		open, transactions = open+n, transactions+status.Transactions.CurrentOpen
	}
	return open, transactions, nil
}

func disconnect(ctx context.Context, members []*mongo.Client) {
	for _, m := range members {
		_ = m.Disconnect(context.WithoutCancel(ctx))
	}
}

// members returns a client for each member.
func (m *Mongo) members(ctx context.Context) (members []*mongo.Client, err error) {
	var hello struct{ Hosts []string }
	if err := m.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return nil, fmt.Errorf("audit: members: %w", err)
	}
	for _, host := range hello.Hosts {
		member, err := connect("mongodb://" + host + "/?directConnection=true")
		if err != nil {
			return members, err
		}
		members = append(members, member)
	}
	return members, nil
}

// connections counts the connections of one member, idle ones included. (A transaction
// without a connection is an idle session, and is not counted.)
func connections(ctx context.Context, member *mongo.Client, name string) (int64, error) {
	var found []bson.Raw
	cursor, err := member.Database("admin").Aggregate(ctx, mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleConnections", Value: true}, {Key: "idleSessions", Value: false}}}},
		{{Key: "$match", Value: bson.D{{Key: "appName", Value: name}}}},
	})
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil {
		return 0, fmt.Errorf("audit: connections: %w", err)
	}
	return int64(len(found)), nil
}
