package loadtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"shop/wallet/bonus"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Stores are the URLs of what a scenario has for itself.
type Stores struct {
	Postgres string
	Mongo    string // "" where the flow has none, like Bonus
	Bonus    string // of the outside service that replicas ask
}

// Members is what came of comparing the members of a replica set.
type Members struct {
	Apart      []string // what is not the same on all of them
	RolledBack []string // ids of operations in the files that a rollback leaves
}

// broken is what breaks M4: members that differ, and operations that were
// acknowledged and rolled back.
func (m Members) broken(records []Record) []string {
	found := slices.Clone(m.Apart)
	acknowledged := map[string]string{}
	for _, r := range records {
		if r.Outcome == OK {
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

// compareMembers asks for what differs between them, if there is somebody to ask.
func (r *run) compareMembers(ctx context.Context) (Members, error) {
	if r.proof.Members == nil {
		return Members{}, nil
	}
	return r.proof.Members(ctx, r.scenario, r.prefix)
}

// Overheard is what was heard on the wires in front of MongoDB.
type Overheard struct {
	Transactions int64    // 0, and no breach: nobody listened
	Breaches     []string // of the rules of the strategy
}

var errNoMongo = errors.New("no MongoDB: the proof says nothing of a server for it")

// enterMongo gives a scenario a MongoDB database and an outside service; leave
// takes them away again.
func (r *run) enterMongo(ctx context.Context) (leave func(), err error) {
	if r.proof.Mongo == nil {
		return nil, errNoMongo
	}
	server, err := r.proof.Mongo(r.scenario)
	if err != nil {
		return nil, err
	}
	if r.stores.Mongo, err = withMongoDatabase(server, r.prefix); err != nil {
		return nil, err
	}
	if r.bonus, err = bonus.Serve(); err != nil {
		return nil, fmt.Errorf("bonus service: %w", err)
	}
	r.stores.Bonus = r.bonus.URL()
	return func() {
		_ = r.bonus.Close()
		if !r.proof.Keep {
			_ = dropMongo(ctx, r.stores.Mongo)
		}
	}, nil
}

// A mongodb:// URL has several hosts, which net/url is not made for.
var mongoURL = regexp.MustCompile(`^(mongodb(?:\+srv)?://[^/?]+)(?:/([^/?]*))?(\?.*)?$`)

// withMongoDatabase is a URL with another database in its path. Who connects with
// it is known to the server by the database's name: see waitMongoQuiet.
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
