// SPDX-License-Identifier: MIT

package stack_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"shop/compose/local/stack"
)

func TestMain(m *testing.M) {
	stack.Reexec()
	_ = os.Setenv("ETCD_CLIENT_DEBUG", "fatal")  // the client would log each error that a test provokes
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // for the supervisors: by default each waits a second at its exit
	goleak.VerifyTestMain(m)
}

// waitLimit bounds each wait of a test; a busy machine is slow.
const waitLimit = 30 * time.Second

// tryLimit bounds one of several tries. A client may wait for a connection that is dead.
const tryLimit = 5 * time.Second

// open starts a stack that ends with the test.
func open(t *testing.T, servers ...string) *stack.Stack {
	t.Helper()
	s, err := stack.Open(t.Context(), stack.Options{Servers: servers, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func server(t *testing.T, s *stack.Stack, name string) *stack.Server {
	t.Helper()
	found, err := s.Server(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// eventually polls a condition and fails after waitLimit.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitLimit); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", waitLimit, what)
		}
	}
}

// register is one value stored in a server.
type register struct {
	write func(ctx context.Context, value string) error
	read  func(ctx context.Context) (string, error)
}

var registers = map[string]func(t *testing.T, s *stack.Server) register{
	"postgres": postgresRegister,
	"redis":    redisRegister,
	"etcd":     etcdRegister,
	"mongo":    mongoRegister,
}

func postgresRegister(t *testing.T, s *stack.Server) register {
	connect := func(ctx context.Context, do func(*pgx.Conn) error) error {
		conn, err := pgx.Connect(ctx, s.Env["SHOP_POSTGRES_URL"])
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		return do(conn)
	}
	return register{
		write: func(ctx context.Context, value string) error {
			return connect(ctx, func(conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS kept (v text); TRUNCATE kept; INSERT INTO kept VALUES ('%s')", value))
				return err
			})
		},
		read: func(ctx context.Context) (value string, err error) {
			err = connect(ctx, func(conn *pgx.Conn) error {
				return conn.QueryRow(ctx, "SELECT v FROM kept").Scan(&value)
			})
			return value, err
		},
	}
}

func redisRegister(t *testing.T, s *stack.Server) register {
	opts, err := redis.ParseURL(s.Env["SHOP_REDIS_URL"])
	must(t, "SHOP_REDIS_URL", err)
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return register{
		write: func(ctx context.Context, value string) error { return client.Set(ctx, "kept", value, 0).Err() },
		read:  func(ctx context.Context) (string, error) { return client.Get(ctx, "kept").Result() },
	}
}

func etcdRegister(t *testing.T, s *stack.Server) register {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(s.Env["SHOP_ETCD_ENDPOINTS"], ",")})
	must(t, "etcd client", err)
	t.Cleanup(func() { _ = client.Close() })
	return register{
		write: func(ctx context.Context, value string) error {
			_, err := client.Put(ctx, "kept", value)
			return err
		},
		read: func(ctx context.Context) (string, error) {
			got, err := client.Get(ctx, "kept")
			if err != nil || len(got.Kvs) == 0 {
				return "", err
			}
			return string(got.Kvs[0].Value), nil
		},
	}
}

func mongoRegister(t *testing.T, s *stack.Server) register {
	kept := mongoClient(t, s.Env["SHOP_MONGO_URL"]).Database("test").Collection("kept")
	return register{
		write: func(ctx context.Context, value string) error {
			_, err := kept.ReplaceOne(ctx, bson.M{"_id": 1}, bson.M{"v": value}, options.Replace().SetUpsert(true))
			return err
		},
		read: func(ctx context.Context) (string, error) {
			var found struct{ V string }
			err := kept.FindOne(ctx, bson.M{"_id": 1}).Decode(&found)
			return found.V, err
		},
	}
}

func mongoClient(t *testing.T, url string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	must(t, "SHOP_MONGO_URL", err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// wantKept reads the value. A client needs a few tries to notice that its old
// connection is closed.
func wantKept(t *testing.T, r register, want string) {
	t.Helper()
	var got string
	var err error
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), tryLimit)
		got, err = r.read(ctx)
		cancel()
		if err == nil {
			break
		}
	}
	if err != nil || got != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}
