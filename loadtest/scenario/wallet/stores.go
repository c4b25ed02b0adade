// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/wallet"
	"shop/wallet/bonus"
)

// Stores are the stores of a trial of this flow, besides PostgreSQL.
type Stores struct {
	Mongo string // URL of its database
	Bonus string // URL of its bonus service

	db      *mongo.Database
	bonus   *bonus.Service
	clients int64 // connections of the replicas to MongoDB, after the load
}

// Of returns the stores of a trial.
func Of(t *loadtest.Trial) *Stores { return t.State.(*Stores) }

// Members is the result of comparing the members of a replica set.
type Members struct {
	Apart      []string // differences between members
	RolledBack []string // ids of operations in the files of rollbacks
}

// broken lists the breaches of M4: members that differ, and acknowledged operations
// that were rolled back.
func (m Members) broken(records []loadtest.Record) []string {
	found := slices.Clone(m.Apart)
	acknowledged := map[string]string{}
	for _, r := range records {
		if r.Outcome == loadtest.OK {
			acknowledged[r.Made.String()] = r.Key
		}
	}
	for _, id := range m.RolledBack {
		if key, known := acknowledged[id]; known {
			found = append(found, key+": operation "+id+" was acknowledged, but rolled back")
		}
	}
	return found
}

// WireReport is what the proxies in front of MongoDB have seen.
type WireReport struct {
	Transactions int64    // 0 without breaches: there was no proxy
	Breaches     []string // of the rules of the strategy
	Conflicts    int64    // locks refused because of another transaction
}

var errNoMongo = errors.New("no MongoDB: the environment names no server")

// open creates a MongoDB database and a bonus service for a trial; closing removes both.
func (env Environment) open(ctx context.Context, t *loadtest.Trial) (closing func(), err error) {
	if env.Mongo == nil {
		return nil, errNoMongo
	}
	server, err := env.Mongo(t.Scenario)
	if err != nil {
		return nil, err
	}
	own := &Stores{}
	if own.Mongo, err = withMongoDatabase(server, t.Prefix); err != nil {
		return nil, err
	}
	if own.db, err = mongoDatabase(own.Mongo); err != nil {
		return nil, err
	}
	disconnect := func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), mongoWait)
		defer cancel()
		if !t.Keep() {
			_ = own.db.Drop(late)
		}
		_ = own.db.Client().Disconnect(late)
	}
	if own.bonus, err = bonus.Serve(); err != nil {
		disconnect()
		return nil, fmt.Errorf("bonus service: %w", err)
	}
	own.Bonus, t.State = own.bonus.URL(), own
	return func() {
		_ = own.bonus.Close()
		disconnect()
	}, nil
}

// mongoURL splits a mongodb:// URL, which may have several hosts; net/url does not support that.
var mongoURL = regexp.MustCompile(`^(mongodb(?:\+srv)?://[^/?]+)(?:/([^/?]*))?(\?.*)?$`)

// withMongoDatabase returns a URL with another database in its path, and with the database's name as
// the appName of its clients: see waitQuiet.
func withMongoDatabase(server, name string) (string, error) {
	part := mongoURL.FindStringSubmatch(server)
	if part == nil {
		return "", fmt.Errorf("not a mongodb:// URL: %q", server)
	}
	options := "?appName=" + name
	if part[3] != "" {
		options = part[3] + "&appName=" + name
	}
	return part[1] + "/" + name + options, nil
}

// mongoDatabase connects to the database in a URL's path, with the appName auditor.
func mongoDatabase(at string) (*mongo.Database, error) {
	part := mongoURL.FindStringSubmatch(at)
	if part == nil || part[2] == "" {
		return nil, fmt.Errorf("not a mongodb:// URL with a database: %q", at)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(at).SetAppName(auditor).SetTimeout(mongoWait).SetServerSelectionTimeout(mongoWait))
	if err != nil {
		return nil, err
	}
	return client.Database(part[2]), nil
}

const (
	auditor   = "loadtest"       // appName of this package's own connections to MongoDB
	mongoWait = 15 * time.Second // longer than an election
)

// watch samples all wallets and all entries, each time in one snapshot.
func watch(ctx context.Context, t *loadtest.Trial) ([]loadtest.Sample, error) {
	return sample(ctx, Of(t).db, money.Accounts(t.Plan), t.Look)
}

// walletNow yields the balance and the sum of the entries of each wallet, even of a wallet that has
// only entries.
const walletNow = `
{"$project": {"says": "$balance"}},
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"_id": "$wallet", "moved": "$delta"}}]}},
{"$group": {"_id": "$_id", "says": {"$sum": "$says"}, "moved": {"$sum": "$moved"}}}`

// sample compares the balances with the entries and the plan's openings.
func sample(ctx context.Context, db *mongo.Database, opened []money.Account, clock func() time.Duration) ([]loadtest.Sample, error) {
	return loadtest.Watch(ctx, clock, func() ([]loadtest.Level, error) {
		var wallets []struct {
			ID          bson.Binary `bson:"_id"`
			Says, Moved int64
		}
		if err := wallet.Aggregate(ctx, db, "wallets", walletNow, &wallets); err != nil {
			return nil, err
		}
		missing := map[string]int64{} // the plan's openings of wallets that were not seen yet
		for _, a := range opened {
			missing[string(a.ID[:])] = a.Opening
		}
		balances, drift, below := loadtest.Level{Name: "balances"}, loadtest.Level{Name: money.DriftLevel}, loadtest.Level{Name: "wallets below 0"}
		add := func(says, is int64) {
			balances.Says, balances.True = balances.Says+says, balances.True+is
			drift.Says += max(says-is, is-says)
		}
		for _, w := range wallets {
			add(w.Says, missing[string(w.ID.Data)]+w.Moved)
			delete(missing, string(w.ID.Data))
			if w.Says < 0 {
				below.Says++
			}
		}
		for _, opening := range missing {
			add(0, opening)
		}
		return []loadtest.Level{balances, drift, below}, nil
	})
}

// waitQuiet waits until no member of the set has a connection with this appName, or returns
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
// write at this primary that a majority acknowledges comes after all of them
// (LoadHistory), and so does every snapshot that is read later.
//
// Connections of other clients do not matter, since the server may be shared.
func waitQuiet(ctx context.Context, db *mongo.Database, name string, limit time.Duration) error {
	members, err := mongoMembers(ctx, db)
	defer disconnect(ctx, members)
	if err != nil {
		return err
	}
	return loadtest.WaitNone(ctx, limit, "connections are left to MongoDB", func() (left int64, err error) {
		for _, m := range members {
			n, err := connections(ctx, m, name)
			if err != nil {
				return 0, err
			}
			left += n
		}
		return left, nil
	})
}

// countClients counts the connections of the replicas. If it finds none while the replicas are
// alive, the end of the last connection cannot be awaited, and the run is inconclusive.
func (s *Stores) countClients(ctx context.Context, name string) {
	s.clients, _ = connections(ctx, s.db.Client(), name)
}

// Figures counts the connections to all members of a trial's MongoDB, and the open transactions, which hold locks.
func Figures(ctx context.Context, t *loadtest.Trial, idle map[string]int64) ([]loadtest.Figure, error) {
	members, err := mongoMembers(ctx, Of(t).db)
	defer disconnect(ctx, members)
	if err != nil {
		return nil, err
	}
	var open, transactions int64
	for _, m := range members {
		n, err := connections(ctx, m, t.Prefix)
		if err != nil {
			return nil, err
		}
		var status struct{ Transactions struct{ CurrentOpen int64 } }
		if err := m.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
			return nil, err
		}
		open, transactions = open+n, transactions+status.Transactions.CurrentOpen
	}
	return []loadtest.Figure{
		{Name: "MongoDB: connections", After: open - idle["mongo"], Slack: 10},
		{Name: "MongoDB: open transactions", After: transactions},
	}, nil
}

func disconnect(ctx context.Context, members []*mongo.Client) {
	for _, m := range members {
		_ = m.Disconnect(context.WithoutCancel(ctx))
	}
}

// mongoMembers returns a client for each member.
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

// connections counts the connections of one member, idle ones included. (A transaction
// without a connection is an idle session, and is not counted.)
func connections(ctx context.Context, member *mongo.Client, name string) (int64, error) {
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
	return int64(len(found)), nil
}
