package mongolock

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mongoURL is the URL of the server on which the tests run.
func mongoURL(t testing.TB) string { t.Helper(); return locktest.Env(t, "SHOP_MONGO_URL") }

// target is a MongoDB, and a kind of Store, to run on.
type target struct {
	url      string
	database string
	broken   func(*Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	g.database = newCollection(t, g.url).Database().Name()
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return g.store(t, g.url, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			p := newProxy(t, primaryOf(t, g.url))
			store, err := g.store(t, through(p), ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Disturbed(store, p)
		},
		Restartable: func() (locktest.Backend, func()) {
			s := startServer(t)
			return target{url: urlOf(s), broken: g.broken}.open(t), s.Restart
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

func (g target) store(t testing.TB, u string, ttl time.Duration) (locking.Store, error) {
	store, err := New(connect(t, u).Database(g.database).Collection("locks"), ttl)
	if err != nil {
		return nil, err
	}
	t.Cleanup(store.Close)
	if g.broken != nil {
		return g.broken(store), nil
	}
	return store, nil
}

// connect makes a client with default settings. It pings at once, because a client that
// was never used takes a heartbeat, ten seconds, to disconnect.
func connect(t testing.TB, u string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(u))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(within(t, 5*time.Second)) })
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return client
}

// newCollection makes a collection in a database of its own, dropped when the test ends.
func newCollection(t testing.TB, u string) *mongo.Collection {
	t.Helper()
	database := connect(t, u).Database("t_" + rand.Text())
	if err := database.CreateCollection(t.Context(), "locks"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Drop(within(t, 5*time.Second)) }) // fails if the test has stopped its server
	return database.Collection("locks")
}

// newStore makes a Store on the shared server, in a key space of its own.
func newStore(t testing.TB, ttl time.Duration) *Store {
	t.Helper()
	return storeOn(t, newCollection(t, mongoURL(t)), ttl)
}

func storeOn(t testing.TB, c *mongo.Collection, ttl time.Duration) *Store {
	t.Helper()
	store, err := New(c, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// disturbed makes a Store behind a proxy, with settings for its client, and a second Store
// in the same key space that connects directly.
func disturbed(t *testing.T, ttl time.Duration, settings ...string) (*Store, *locktest.Faults, *Store) {
	t.Helper()
	p := newProxy(t, primaryOf(t, mongoURL(t)))
	other := newStore(t, ttl)
	c := other.collection
	store := storeOn(t, connect(t, through(p)+strings.Join(settings, "")).Database(c.Database().Name()).Collection(c.Name()), ttl)
	if err := store.Release(t.Context(), taken(t, store, "warm-up")); err != nil {
		t.Fatal(err)
	}
	return store, p, other
}

func taken(t testing.TB, s locking.Store, key string) locking.Lease {
	t.Helper()
	lease, err := s.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantBusy(t testing.TB, s locking.Store, key string) {
	t.Helper()
	if lease, err := s.TryAcquire(t.Context(), key); !errors.Is(err, locking.ErrBusy) {
		t.Fatalf("acquire %q: got %+v and %v, want ErrBusy", key, lease, err)
	}
}

// within returns a ctx that may be used in a Cleanup too.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// primaryOf returns the address of the primary, as the target of a proxy.
func primaryOf(t testing.TB, u string) string {
	t.Helper()
	var hello struct {
		Primary string `bson:"primary"`
	}
	if err := connect(t, u).Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	return hello.Primary
}

// startServer starts a mongod for one test, as a replica set of one member.
func startServer(t testing.TB) *locktest.Server {
	t.Helper()
	return locktest.Start(t, locktest.Mongod(serves))
}

func urlOf(s *locktest.Server) string { return "mongodb://" + s.Addr + "/?replicaSet=rs" }

// serves initiates the set, once, and requires a write, which needs a primary. The
// initiation is not bounded by short: an interrupted one leaves the set incomplete, and
// the server crashes at the next one.
func serves(ctx context.Context, s *locktest.Server) error {
	return direct(s, func(admin *mongo.Database) error {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var server mongo.ServerError
		err := admin.RunCommand(short, bson.D{{Key: "appendOplogNote", Value: 1}, {Key: "data", Value: bson.D{{Key: "ready", Value: 1}}}}).Err()
		if status := admin.RunCommand(short, bson.D{{Key: "replSetGetStatus", Value: 1}}).Err(); !errors.As(status, &server) || !server.HasErrorCode(notYetInitialized) {
			return err
		}
		return admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: "rs"},
			{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: s.Addr}}}},
			{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 1000}}},
		}}}).Err()
	})
}

const notYetInitialized = 94

// direct calls do with a client of the server, whatever state its set is in.
func direct(s *locktest.Server, do func(admin *mongo.Database) error) error {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.Addr + "/?directConnection=true"))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	return do(client.Database("admin"))
}

// command sends c to the server until it succeeds, whatever state its set is in.
func command(t testing.TB, s *locktest.Server, c bson.D) {
	t.Helper()
	locktest.Eventually(t, c[0].Key, func() bool {
		return direct(s, func(admin *mongo.Database) error { return admin.RunCommand(within(t, time.Second), c).Err() }) == nil
	})
}

// newProxy makes a proxy that disturbs lock requests: an OP_MSG whose command is
// findAndModify. The command follows the header, the flags, the kind of section, the
// length of the document, and the type of its first element.
func newProxy(t testing.TB, addr string) *locktest.Faults {
	t.Helper()
	return locktest.NewFaults(t, addr, func(message []byte) bool {
		const opMsg, commandAt = 2013, 16 + 4 + 1 + 4 + 1
		return len(message) > commandAt && binary.LittleEndian.Uint32(message[12:]) == opMsg &&
			bytes.HasPrefix(message[commandAt:], []byte("findAndModify\x00"))
	})
}

// through is the URL of the proxy with a direct connection: a client that discovers the
// members of the set would bypass the proxy.
func through(p *locktest.Faults) string { return "mongodb://" + p.Addr + "/?directConnection=true" }
