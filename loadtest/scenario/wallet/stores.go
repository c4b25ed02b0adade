package wallet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"shop/loadtest"
	"shop/wallet/bonus"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Stores are what a trial of this flow has for itself, beside PostgreSQL.
type Stores struct {
	Mongo string // URL of its database
	Bonus string // URL of its bonus service

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
	if own.bonus, err = bonus.Serve(); err != nil {
		return nil, fmt.Errorf("bonus service: %w", err)
	}
	own.Bonus, t.State = own.bonus.URL(), own
	return func() {
		_ = own.bonus.Close()
		if !t.Keep() {
			_ = dropMongo(ctx, own.Mongo)
		}
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

// dropMongo removes a scenario's database, also when ctx has ended.
func dropMongo(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mongoWait)
	defer cancel()
	db, err := mongoDatabase(at)
	if err != nil {
		return err
	}
	return errors.Join(db.Drop(ctx), db.Client().Disconnect(ctx))
}
