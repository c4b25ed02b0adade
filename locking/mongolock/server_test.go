package mongolock

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// server is a mongod of one test, which may kill it: a replica set of one.
type server struct {
	t    testing.TB
	addr string
	dir  string
	log  bytes.Buffer

	cmd  *exec.Cmd
	life io.Closer // closing it kills the server
}

// startServer starts a server on a free port of the loopback and stops it when the
// test ends.
func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, addr: freeAddr(t), dir: t.TempDir()}
	t.Cleanup(s.kill)
	s.spawn()
	s.await("an answer", bson.D{{Key: "ping", Value: 1}})
	s.initiate()
	s.awaitPrimary()
	return s
}

// initiate makes the set. It asks once, and has time: an initiation that is
// interrupted leaves a set half made, and the server crashes at the next one.
func (s *server) initiate() {
	s.t.Helper()
	s.direct(func(admin *mongo.Database) {
		err := admin.RunCommand(within(s.t, 30*time.Second), bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: "rs"},
			{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: s.addr}}}},
			{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 1000}}},
		}}}).Err()
		if err != nil {
			s.t.Fatal(err)
		}
	})
}

func (s *server) url() string { return "mongodb://" + s.addr + "/?replicaSet=rs" }

// spawn runs the server under a shell that kills it as soon as the pipe to us
// closes: when we say so, and also when this process dies in whatever way.
func (s *server) spawn() {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	const guard = `trap "" INT TERM; "$@" & child=$!; read -r _; kill -9 $child; wait $child`
	s.cmd = exec.Command("sh", "-c", guard, "guard", mongod(s.t),
		"--bind_ip", host, "--port", port, "--nounixsocket", "--dbpath", s.dir, "--replSet", "rs",
		"--oplogSize", "16", "--wiredTigerCacheSizeGB", "0.25", "--setParameter", "enableTestCommands=1", "--quiet")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	life, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.life = life
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// direct gives a client of the server, whatever state its set is in.
func (s *server) direct(do func(admin *mongo.Database)) {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.addr + "/?directConnection=true"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	do(client.Database("admin"))
}

// await sends a command until it succeeds.
func (s *server) await(what string, command bson.D) {
	s.t.Helper()
	s.direct(func(admin *mongo.Database) {
		waitFor(s.t, what, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return admin.RunCommand(ctx, command).Err() == nil
		})
	})
}

// awaitPrimary returns when the server takes writes.
func (s *server) awaitPrimary() {
	s.t.Helper()
	s.await("a primary", bson.D{{Key: "appendOplogNote", Value: 1}, {Key: "data", Value: bson.D{{Key: "ready", Value: 1}}}})
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
		s.t.Logf("the end of what mongod on %s said:\n%s", s.addr, s.log.Bytes()[max(0, s.log.Len()-4000):])
	}
}

// restart kills the server and starts it on the data it left.
func (s *server) restart() {
	s.kill()
	s.spawn()
	s.awaitPrimary()
}

func mongod(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("SHOP_MONGOD_SERVER"), "mongod"))
	if err != nil {
		t.Fatalf("this test starts a server of its own and found none: install mongod, or set SHOP_MONGOD_SERVER to its path: %v", err)
	}
	return path
}

// freeAddr gives a port that stays free while its server is down: not one of those
// that the system gives to whoever asks for any.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(10_000)))
		if _, taken := addrs.LoadOrStore(addr, true); taken {
			continue
		}
		if listener, err := net.Listen("tcp", addr); err == nil {
			_ = listener.Close()
			return addr
		}
	}
	t.Fatal("no free port from 10000 to 19999")
	return ""
}

var addrs sync.Map // given away by this process

// waitFor asks again and again until ok says yes.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ask, limit := time.NewTicker(5*time.Millisecond), time.After(30*time.Second)
	defer ask.Stop()
	for !ok() {
		select {
		case <-ask.C:
		case <-limit:
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
