// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"shop/locking/servertest/daemon"
)

// Server is a server for one test, with a port and data of its own. The test may kill
// it, pause it and start it again; it is killed when the test ends.
//
// If the server dies by itself, the test fails at once. If the test is still waiting
// deathGrace later, the test process panics, with the name of the server and its last
// log lines, because the wait may never end.
type Server struct {
	Addr  string   // host:port
	URL   string   // for a client
	Flags []string // of its next start, in addition to those of its kind

	t        testing.TB
	instance *daemon.Instance
	over     chan struct{}
	watching sync.WaitGroup
}

const (
	startLimit = time.Minute // of a server, with its first data, while other tests run
	deathGrace = 5 * time.Second
)

// Start starts a server and returns when it serves.
func Start(t testing.TB, k daemon.Kind, flags ...string) *Server {
	t.Helper()
	return StartCluster(t, k, flags...)[0]
}

// StartCluster starts the members of a server, and returns when all of them serve.
func StartCluster(t testing.TB, k daemon.Kind, flags ...string) (all []*Server) {
	t.Helper()
	dir, program := t.TempDir(), find(t, k.File)
	if os.Geteuid() == 0 { // this folder, and the one around it, are closed to the server's user
		if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
			t.Fatal(err)
		}
	}
	members, err := daemon.NewCluster(dir, k.Name, program, &k, func(n int) (ports []int, _ error) {
		for range n {
			ports = append(ports, freePort(t))
		}
		return ports, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		m.Reaper, m.Flags = true, flags
		s := &Server{Addr: m.Addr(), Flags: flags, t: t, instance: m, over: make(chan struct{})}
		t.Cleanup(s.end)
		all = append(all, s)
	}
	all[0].must(func() error {
		ctx, cancel := limited()
		defer cancel()
		return daemon.StartAll(ctx, members)
	})
	for _, s := range all {
		s.URL = s.instance.URL()
		s.watch()
	}
	return all
}

// find returns the path of a program. Those of servers are not on the PATH of every user.
func find(t testing.TB, file string) string {
	t.Helper()
	variable := daemon.Variable(file)
	set := os.Getenv(variable)
	path, err := exec.LookPath(cmp.Or(set, file))
	if err != nil && set == "" {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", file))
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		t.Fatalf("this test starts a server of its own: install %s (make ready), or set %s to its path, as "+
			"`go run ./compose/local exec -- go test ./...` does: %v", file, variable, err)
	}
	return path
}

func (s *Server) String() string { return s.instance.Name + " on " + s.Addr }

func (s *Server) end() {
	close(s.over)
	s.Kill()
	s.watching.Wait()
	if s.t.Failed() {
		s.t.Logf("the last lines of %s:\n%s", s, s.instance.LastLog())
	}
}

// Start runs the server on its existing data, and returns when it serves.
func (s *Server) Start() {
	s.t.Helper()
	s.instance.Flags = s.Flags
	s.must(func() error {
		ctx, cancel := limited()
		defer cancel()
		return s.instance.Start(ctx)
	})
	s.watch()
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), startLimit, fmt.Errorf("%s have passed", startLimit))
}

func (s *Server) must(do func() error) {
	s.t.Helper()
	if err := do(); err != nil {
		s.t.Fatalf("%s: %v", s, err)
	}
}

// Restart kills the server and starts it on its existing data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// watch fails the test when this run ends, unless Kill has ended it.
func (s *Server) watch() {
	exited := s.instance.Exited()
	s.watching.Go(func() {
		<-exited
		s.report()
	})
}

func (s *Server) report() {
	death := s.instance.Death()
	if death == "" {
		return
	}
	death = fmt.Sprintf("%s died unexpectedly: %s", s, death)
	s.t.Error(death)
	select {
	case <-s.over:
	case <-time.After(deathGrace):
		if s.instance.Death() != "" { // not killed meanwhile
			panic(s.t.Name() + ": " + death)
		}
	}
}

// Kill kills the server without a graceful shutdown.
func (s *Server) Kill() {
	if err := s.instance.Kill(); err != nil {
		s.t.Errorf("kill %s: %v", s, err)
	}
}

// Wipe removes the data of a killed server: its next start is its first.
func (s *Server) Wipe() {
	s.t.Helper()
	s.must(func() error { return s.instance.Wipe(context.Background()) })
}

// Up reports whether the server runs or is paused.
func (s *Server) Up() bool { return s.instance.Snapshot().State != daemon.Down }

// Pause stops the process: connections stay open, and no request is answered. It returns when the
// process is stopped. Until the signal is handled, its other threads still answer.
func (s *Server) Pause() {
	s.t.Helper()
	s.must(s.instance.Pause)
}

// Resume ends a pause.
func (s *Server) Resume() {
	s.t.Helper()
	s.must(s.instance.Resume)
}

// StartPostgres starts a PostgreSQL for one test, and returns its URL. The kernel keeps what a killed process has
// written, so nothing is flushed to the disk. Kill ends the server without a checkpoint, so that its next start recovers
// from the log.
func StartPostgres(t testing.TB) (s *Server, url string) {
	t.Helper()
	s = Start(t, daemon.Postgres(postgresSettings...))
	return s, s.URL
}

var postgresSettings = []string{"fsync=off", "shared_buffers=16MB"}

// StartStandby starts a standby of primary, and returns its URL. The name in synchronous_standby_names is standby. Both
// have one password.
func StartStandby(t testing.TB, primary *Server) (s *Server, url string) {
	t.Helper()
	k := daemon.Postgres(postgresSettings...)
	k.Setup = func(ctx context.Context, i *daemon.Instance) error {
		i.Secret = primary.instance.Secret
		return daemon.Follow(ctx, i, primary.instance)
	}
	k.Join = nil
	s = Start(t, k)
	return s, s.URL
}

// StartEtcd starts an etcd of n members with additional flags.
func StartEtcd(t testing.TB, n int, flags ...string) []*Server {
	t.Helper()
	return StartCluster(t, daemon.Etcd(n), flags...)
}

// StartZooKeeper starts a ZooKeeper of n members. The shortest timeout of a session is 2 s.
func StartZooKeeper(t testing.TB, n int) []*Server {
	t.Helper()
	if daemon.ZooKeeperJars() == "" {
		t.Fatal("this test starts a server of its own: install default-jre-headless and libzookeeper-java, or on macOS openjdk and zookeeper")
	}
	return StartCluster(t, daemon.ZooKeeper(n))
}

// FreeAddr returns a loopback address that stays free until the test ends, even while its
// server is down. Its port is outside of the system's ephemeral range, and the UDP port
// with the same number reserves it against other processes that call FreeAddr. The servers
// of a stack have ports from 20000 on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return address(freePort(t))
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(5_000)
		if _, taken := picked.LoadOrStore(port, true); taken {
			continue
		}
		addr := address(port)
		reserved, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		if listener, err := net.Listen("tcp", addr); err == nil {
			_ = listener.Close()
			t.Cleanup(func() { _ = reserved.Close() })
			return port
		}
		_ = reserved.Close()
	}
	t.Fatal("no free port from 10000 to 14999")
	return 0
}

var picked sync.Map // that freePort has returned in this process

// Env reads the address of a server that tests share. If it is not set, the test fails: no
// test is skipped.
func Env(t testing.TB, name string) string {
	t.Helper()
	addr := os.Getenv(name)
	if addr == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, or `go run ./compose/local exec -- go test ./...`", name)
	}
	return addr
}
