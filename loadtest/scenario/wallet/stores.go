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

// Stores are what a trial of this flow has for itself, beside PostgreSQL.
type Stores struct {
	Mongo string // URL of its database
	Bonus string // URL of its bonus service

	db      *mongo.Database
	bonus   *bonus.Service
	clients int64 // connections of the replicas to MongoDB, when the load was over
}

// Of are the stores of a trial.
func Of(t *loadtest.Trial) *Stores { return t.State.(*Stores) }

// Members is what came of comparing the members of a replica set.
type Members struct {
	Apart      []string // what is not the same on all of them
	RolledBack []string // ids of operations in the files that a rollback leaves
}

// broken is what breaks M4: members that differ, and operations that were
// acknowledged and rolled back.
func (m Members) broken(records []loadtest.Record) []string {
	found := slices.Clone(m.Apart)
	acknowledged := map[string]string{}
	for _, r := range records {
		if r.Outcome == loadtest.OK {
			acknowledged[r.Made.String()] = r.Key
		}
	}
	for _, id := range m.RolledBack {
		if key, told := acknowledged[id]; told {
			found = append(found, key+": operation "+id+" was acknowledged, and rolled back")
		}
	}
	return found
}

// WireReport is what the proxies in front of MongoDB saw.
type WireReport struct {
	Transactions int64    // 0, and no breach: there was no proxy
	Breaches     []string // of the rules of the strategy
	Conflicts    int64    // locks that were refused because of another transaction
}

var errNoMongo = errors.New("no MongoDB: the environment names no server for it")

// open gives a trial a MongoDB database and a bonus service; closing takes them away
// again.
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

// A mongodb:// URL has several hosts, which net/url is not made for.
var mongoURL = regexp.MustCompile(`^(mongodb(?:\+srv)?://[^/?]+)(?:/([^/?]*))?(\?.*)?$`)

// withMongoDatabase is a URL with another database in its path. Its clients are known to
// the server by the database's name: see waitQuiet.
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

// mongoDatabase connects to the database in a URL's path, under a name of our own.
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
	auditor   = "loadtest"       // what our own connections to MongoDB are called
	mongoWait = 15 * time.Second // for an answer of MongoDB: longer than an election
)

// watch samples all wallets and all entries, at one moment each time.
func watch(ctx context.Context, t *loadtest.Trial) ([]loadtest.Sample, error) {
	return sample(ctx, Of(t).db, money.Accounts(t.Plan), t.Look)
}

// walletNow yields for each wallet its balance, and the sum of its entries; also for one of
// which there are entries only.
const walletNow = `
{"$project": {"says": "$balance"}},
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"_id": "$wallet", "moved": "$delta"}}]}},
{"$group": {"_id": "$_id", "says": {"$sum": "$says"}, "moved": {"$sum": "$moved"}}}`

// sample compares the balances with the entries and with what the plan opened.
func sample(ctx context.Context, db *mongo.Database, opened []money.Account, clock func() time.Duration) ([]loadtest.Sample, error) {
	return loadtest.Watch(ctx, clock, func() ([]loadtest.Level, error) {
		var wallets []struct {
			ID          bson.Binary `bson:"_id"`
			Says, Moved int64
		}
		if err := wallet.Aggregate(ctx, db, "wallets", walletNow, &wallets); err != nil {
			return nil, err
		}
		missing := map[string]int64{} // what the plan opened, of wallets that were not seen yet
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

// waitQuiet returns when no member of the set has a connection left of the clients with
// the name, or with an error when one is left after the limit. From then on nothing changes
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
// (LoadHistory), and so is every snapshot that is read later.
//
// Connections of others do not matter, since the server may have other work to do.
func waitQuiet(ctx context.Context, db *mongo.Database, name string, limit time.Duration) error {
	members, err := mongoMembers(ctx, db)
	defer func() {
		for _, m := range members {
			_ = m.Disconnect(context.WithoutCancel(ctx))
		}
	}()
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

// countClients counts the connections of the replicas. If there were none while they are
// alive, the end of the last one could not be awaited: the run is inconclusive.
func (s *Stores) countClients(ctx context.Context, name string) {
	s.clients, _ = connections(ctx, s.db.Client(), name)
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
