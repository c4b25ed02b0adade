package inventory_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"shop/inventory"
	"shop/locking/redislock"
)

// openWithRedis is open with a lock store on the shared server.
func openWithRedis(t testing.TB, cfg inventory.Config) *shop {
	t.Helper()
	cfg.Locks = locksAt(t, env(t, "SHOP_REDIS_URL"), 2*time.Second)
	return open(t, cfg)
}

// locksAt makes a store with names of its own.
func locksAt(t testing.TB, redisURL string, ttl time.Duration) *redislock.Store {
	t.Helper()
	store, _ := namedLocksAt(t, redisURL, ttl)
	return store
}

func namedLocksAt(t testing.TB, redisURL string, ttl time.Duration) (store *redislock.Store, prefix string) {
	t.Helper()
	client, err := redislock.Connect(redisURL, ttl)
	if err != nil {
		t.Fatal(err)
	}
	prefix = uuid.NewString()
	store, err = redislock.New(client, ttl, redislock.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		store.Close()
		client.Close()
	})
	return store, prefix
}

// redisServer is a server of one test, which may kill and stop it.
type redisServer struct {
	t    testing.TB
	addr string
	cmd  *exec.Cmd
	life io.Closer

	stopped int // pid, while it is paused
}

func startRedis(t testing.TB) *redisServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &redisServer{t: t, addr: l.Addr().String()}
	l.Close()
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *redisServer) url() string { return "redis://" + r.addr }

// start waits until the server answers. It dies with us: its shell kills it when our pipe closes.
func (r *redisServer) start() {
	r.t.Helper()
	binary, err := exec.LookPath(cmp.Or(os.Getenv("SHOP_REDIS_SERVER"), "redis-server"))
	if err != nil {
		r.t.Fatalf("this test starts a Redis of its own: set SHOP_REDIS_SERVER to its path: %v", err)
	}
	_, port, _ := net.SplitHostPort(r.addr)
	const guard = `"$@" & child=$!; read -r _; kill -9 $child; wait $child`
	r.cmd = exec.Command("sh", "-c", guard, "guard", binary,
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.t.TempDir())
	if r.life, err = r.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	client := r.client()
	defer client.Close()
	eventually(r.t, "redis-server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
}

func (r *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1, DialerRetries: 1})
}

// pid of the server itself, from its own mouth.
func (r *redisServer) pid() int {
	r.t.Helper()
	client := r.client()
	defer client.Close()
	info := client.InfoMap(context.Background(), "server")
	pid, err := strconv.Atoi(info.Item("Server", "process_id"))
	if err != nil {
		r.t.Fatal(err, info.Err())
	}
	return pid
}

func (r *redisServer) kill() {
	if r.cmd != nil {
		_ = r.life.Close()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}
