package redislock

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server of one test, which may kill it.
type server struct {
	t    testing.TB
	port string
	dir  string
	args []string
	log  bytes.Buffer

	cmd  *exec.Cmd
	life io.Closer // closing it kills the server
}

// persistent are the settings of a server that loses nothing it has answered.
var persistent = []string{"--appendonly", "yes", "--appendfsync", "always"}

// startServer starts a server on a free port of the loopback and stops it when
// the test ends.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, port: freePort(t), dir: t.TempDir(), args: args}
	t.Cleanup(s.kill)
	s.start()
	return s
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// start runs the server under a shell that kills it as soon as the pipe to us
// closes: when we say so, and also when this process dies in whatever way.
func (s *server) start() {
	s.t.Helper()
	const guard = `trap "" INT TERM; "$@" & child=$!; read -r _; kill -9 $child; wait $child`
	args := append([]string{"-c", guard, "guard", redisServer(s.t)}, s.args...)
	args = append(args, "--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--loglevel", "warning")
	s.cmd = exec.Command("sh", args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	life, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.life = life
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	waitFor(s.t, "redis-server on "+s.addr(), func() bool { return client.Ping(context.Background()).Err() == nil })
}

// kill stops the server without letting it say good-bye.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.life.Close()
	_ = s.cmd.Wait()
	s.cmd = nil
	if s.t.Failed() {
		s.t.Logf("redis-server on %s said:\n%s", s.addr(), s.log.String())
	}
}

// restart kills the server and starts it on the data it left.
func (s *server) restart() {
	s.kill()
	s.start()
}

func redisServer(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("SHOP_REDIS_SERVER"), "redis-server"))
	if err != nil {
		t.Fatalf("this test starts a server of its own and found none: install redis-server, or set SHOP_REDIS_SERVER to its path: %v", err)
	}
	return path
}

func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// waitFor asks again and again until ok says yes.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ask, limit := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer ask.Stop()
	for !ok() {
		select {
		case <-ask.C:
		case <-limit:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func (s *server) url() string { return "redis://" + s.addr() }

// startCluster starts a Cluster of one node that has all the slots.
func startCluster(t testing.TB) *server {
	t.Helper()
	s := startServer(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", freePort(t)}, persistent...)...)
	client := redis.NewClient(&redis.Options{Addr: s.addr()})
	defer client.Close()
	ctx := context.Background()
	if err := client.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the cluster", func() bool {
		return strings.Contains(client.ClusterInfo(ctx).Val(), "cluster_state:ok")
	})
	return s
}
