// SPDX-License-Identifier: MIT

package soak_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/soak"
	"shop/locking/etcdlock"
	"shop/locking/idempotency/pgtx/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns the readings of a source, by the name of the gauge after its colon.
func read(t *testing.T, s soak.Source) map[string]float64 {
	t.Helper()
	values, err := s.Read(t.Context())
	if err != nil || len(values) != len(s.Gauges) {
		t.Fatalf("%v, %v", values, err)
	}
	named := map[string]float64{}
	for i, g := range s.Gauges {
		_, name, _ := strings.Cut(g.Name, ": ")
		named[name] = values[i]
	}
	return named
}

// grown checks by how much readings grew.
func grown(t *testing.T, was, is, want map[string]float64) {
	t.Helper()
	for name, by := range want {
		if got := is[name] - was[name]; got != by {
			t.Errorf("%s: from %g to %g, want %g more", name, was[name], is[name], by)
		}
	}
}

func TestProcess_SeesMemoryThreadsFilesAndGoroutines(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "# TYPE go_goroutines gauge\ngo_goroutines 42")
	}))
	defer metrics.Close()
	s := soak.Process("replica 1", os.Getpid, strings.TrimPrefix(metrics.URL, "http://"))
	was := read(t, s)
	for n := range 5 {
		file, err := os.Create(filepath.Join(t.TempDir(), fmt.Sprint(n)))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
	}
	is := read(t, s)
	if more := is["open files"] - was["open files"]; more < 5 || more > 10 { // and connections of this test
		t.Errorf("%g more open files, want 5", more)
	}
	if is["memory"] < 1 || is["threads"] < 2 || is["goroutines"] != 42 {
		t.Errorf("%v", is)
	}
	if _, err := soak.Process("gone", func() int { return 0 }, "").Read(t.Context()); err == nil {
		t.Error("a process that does not exist was read")
	}
}

func TestPostgres_SeesConnectionsTransactionsLocksAndRecords(t *testing.T) {
	db, err := loadtest.CreateDatabase(t.Context(), testbed.Env(t, "SHOP_POSTGRES_URL"), fmt.Sprintf("soak_%d", time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Drop(context.Background()) })
	conn := testbed.Connect(t, db.URL)
	pgtest.Migrate(t, conn, "transfer", "cmd/shop/api")
	s := soak.Postgres(db.URL)
	was := read(t, s)
	if was["connections"] != 1 || was["open transactions"] != 0 || was["locks of rows and keys"] != 0 {
		t.Errorf("at the beginning: %v", was)
	}
	testbed.Connect(t, db.URL)
	holder := testbed.Connect(t, db.URL)
	testbed.Exec(t, holder, `BEGIN; SELECT pg_advisory_xact_lock(7)`)
	testbed.Exec(t, conn, `
INSERT INTO accounts (id, owner_id, currency, opening, balance, held)
SELECT gen_random_uuid(), gen_random_uuid(), 'EUR', 5, 5, 1 FROM generate_series(1, 2);
INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency, state, created_at, expires_at)
SELECT gen_random_uuid(), gen_random_uuid(), 'k', min(id::text)::uuid, max(id::text)::uuid, 1, 'EUR', 'reserved', now(), now() FROM accounts;
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body)
SELECT gen_random_uuid(), 'k', decode(repeat('00', 32), 'hex'), 201, repeat('x', 1000)::bytea FROM generate_series(1, 3000);
INSERT INTO clients (id, name, key_sha256) VALUES (gen_random_uuid(), 'a', decode(repeat('00', 32), 'hex'))`)
	is := read(t, s)
	grown(t, was, is, map[string]float64{
		"connections": 2, "open transactions": 1, "locks of rows and keys": 1, "holds that are not ended": 1, "idempotency keys": 3000, "clients": 1,
	})
	if more := is["size of idempotency keys"] - was["size of idempotency keys"]; more < 2 {
		t.Errorf("3000 keys have %g MiB", more)
	}
}

func TestRedis_SeesLocksAndTheirCountersApart(t *testing.T) {
	o, err := redis.ParseURL(testbed.Env(t, "SHOP_REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	prefix := fmt.Sprintf("soak-%d", time.Now().UnixNano())
	names := []string{prefix + "{1}lock:a", prefix + "{1}lock:b}fence:", prefix + "{1}fence"}
	t.Cleanup(func() {
		client.Del(context.Background(), names...)
		_ = client.Close()
	})
	was := read(t, soak.Redis(client, prefix))
	for _, name := range names {
		if err := client.Set(t.Context(), name, "1", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	is := read(t, soak.Redis(client, prefix))
	grown(t, was, is, map[string]float64{"locks": 2, "counters of fences": 1})
	if is["connections"] < 1 || is["memory"] <= 0 {
		t.Errorf("%v", is)
	}
}

func TestEtcd_SeesLocksAndPermanentKeys(t *testing.T) {
	config := etcdlock.Config(strings.Split(testbed.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")...)
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("soak-%d", time.Now().UnixNano())
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = client.Delete(context.Background(), prefix+"/", clientv3.WithPrefix())
		_, _ = client.Revoke(context.Background(), lease.ID)
		_ = client.Close()
	})
	was := read(t, soak.Etcd(client, prefix))
	for name, options := range map[string][]clientv3.OpOption{
		"/3:abc/x": {clientv3.WithLease(lease.ID)}, "/3:abd/x": {clientv3.WithLease(lease.ID)}, "/epoch": nil,
	} {
		if _, err := client.Put(t.Context(), prefix+name, "", options...); err != nil {
			t.Fatal(err)
		}
	}
	is := read(t, soak.Etcd(client, prefix))
	grown(t, was, is, map[string]float64{"locks": 2, "keys without a lease": 1})
	if is["leases"] < 1 || is["size in use"] <= 0 || is["open files, connections among them"] < 1 {
		t.Errorf("%v", is)
	}
}

func TestMongo_SeesConnectionsOfTheServiceAndItsRefusals(t *testing.T) {
	at, name := testbed.Env(t, "SHOP_MONGO_URL"), fmt.Sprintf("soak_%d", time.Now().UnixNano())
	connect := func(called string) *mongo.Client {
		client, err := mongo.Connect(options.Client().ApplyURI(at).SetAppName(called))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
		return client
	}
	db := connect("soak").Database(name)
	t.Cleanup(func() { _ = db.Drop(context.Background()) })
	s := soak.Mongo(db, name)
	was := read(t, s)
	if was["connections"] != 0 || was["refused operations"] != 0 {
		t.Errorf("at the beginning: %v", was)
	}
	if err := connect(name).Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for collection, documents := range map[string][]any{
		"wallet_operations": {bson.D{{Key: "refused", Value: "insufficient-funds"}}, bson.D{{Key: "amount", Value: 1}}},
		soak.Unpurged:       {bson.D{{Key: "refused", Value: "insufficient-funds"}}},
	} {
		if _, err := db.Collection(collection).InsertMany(t.Context(), documents); err != nil {
			t.Fatal(err)
		}
	}
	is := read(t, s)
	grown(t, was, is, map[string]float64{"refused operations": 2})
	if is["connections"] < 1 {
		t.Errorf("%v", is)
	}
}
