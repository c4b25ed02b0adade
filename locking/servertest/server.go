// SPDX-License-Identifier: MIT

package servertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shop/locking/locktest"
)

// Program is a server that a test can start for itself.
type Program struct {
	Name string // of the binary
	Env  string // the environment variable with the path of the binary, if it is not on PATH

	User   *syscall.Credential // of the process; nil: that of the test
	Signal string              // with which it is killed; empty: KILL

	// Args returns the arguments of s, whose Addr and Dir are set.
	Args func(s *Server) []string
	// Ready checks whether the server serves. It is called until it returns nil.
	Ready func(ctx context.Context, s *Server) error
}

// Server is a server for one test, with a port and data of its own. The test may kill
// it, pause it and start it again; it is killed when the test ends.
//
// If the server dies by itself, the test fails at once. If the test is still waiting
// deathGrace later, the test process panics, with the name of the server and its last
// log lines, because the wait may never end.
type Server struct {
	Addr  string   // host:port
	Dir   string   // its data
	Flags []string // of its next start, in addition to those of its program

	t       testing.TB
	program Program
	log     string // file
	over    chan struct{}

	mu  sync.Mutex
	now *process // nil: down
}

// process is one run of a Server.
type process struct {
	pid   int
	life  io.Closer     // closing it kills the server
	asked chan struct{} // closed by Kill
	ended chan struct{} // closed when the process has ended
}

const (
	startLimit = 30 * time.Second
	deathGrace = 5 * time.Second
)

// guard runs a server under a shell that kills it as soon as the pipe to the test
// closes: when the test closes it, and when the test process dies for any reason. It
// writes the process id, and ends with the server. Its $0 is the signal.
const guard = `trap "" INT TERM
exec 4<&0 </dev/null
"$@" 3>&- 4<&- &
server=$!
echo $server >&3
exec 3>&- 2>/dev/null
{ read -r _ <&4; kill -$0 $server; kill -CONT $server; } >/dev/null 2>&1 &
reader=$!
wait $server
kill -9 $reader`

// Start starts a server and returns when it serves.
func Start(t testing.TB, p Program) *Server {
	t.Helper()
	s := NewServer(t, p)
	s.Start()
	return s
}

// NewServer makes a server with an address and a folder, but does not start it.
func NewServer(t testing.TB, p Program) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{
		Addr: FreeAddr(t), Dir: filepath.Join(dir, "data"), t: t, program: p,
		log: filepath.Join(dir, "log"), over: make(chan struct{}),
	}
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(s.over)
		s.Kill()
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", s, s.tail())
		}
	})
	return s
}

func (s *Server) String() string { return s.program.Name + " on " + s.Addr }

// Start runs the server on its existing data, and returns when it serves.
func (s *Server) Start() {
	s.t.Helper()
	s.Spawn()
	s.Await()
}

// Restart kills the server and starts it on its existing data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// Spawn is Start without waiting: the members of a cluster wait for each other.
func (s *Server) Spawn() {
	s.t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(s.program.Env), s.program.Name))
	if err != nil {
		s.t.Fatalf("this test starts a server of its own: install %s, or set %s to its path: %v", s.program.Name, s.program.Env, err)
	}
	cmd := exec.Command("sh", slices.Concat([]string{"-c", guard, cmp.Or(s.program.Signal, "KILL"), path}, s.program.Args(s), s.Flags)...)
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log // a file, so that Wait waits for the process alone
	pid, pidWriter, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer pid.Close()
	cmd.ExtraFiles, cmd.Dir = []*os.File{pidWriter}, s.Dir // which the other user can enter
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.program.User}
	p := &process{asked: make(chan struct{}), ended: make(chan struct{})}
	if p.life, err = cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	err = cmd.Start()
	_ = pidWriter.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fscan(pid, &p.pid); err != nil {
		s.t.Fatalf("%s: no process id: %v", s, err)
	}
	s.mu.Lock()
	s.now = p
	s.mu.Unlock()
	go s.watch(cmd, p)
}

// watch waits for the end of a process, and fails the test unless Kill has ended it.
func (s *Server) watch(cmd *exec.Cmd, p *process) {
	_ = cmd.Wait()
	defer close(p.ended)
	select {
	case <-p.asked:
		return
	default:
	}
	death := fmt.Sprintf("%s died unexpectedly; its last lines:\n%s", s, s.tail())
	s.t.Error(death)
	select {
	case <-s.over:
	case <-p.asked:
	case <-time.After(deathGrace):
		panic(s.t.Name() + ": " + death)
	}
}

// Await returns when the server serves.
func (s *Server) Await() {
	s.t.Helper()
	limit := time.Now().Add(startLimit)
	for pause := time.NewTicker(10 * time.Millisecond); ; <-pause.C {
		ctx, cancel := context.WithDeadline(context.Background(), limit)
		err := s.program.Ready(ctx, s)
		cancel()
		switch {
		case err == nil:
			pause.Stop()
			return
		case s.t.Failed():
			s.t.FailNow() // this server, or another of the test, is dead
		case time.Now().After(limit):
			s.t.Fatalf("%s does not serve after %v: %v", s, startLimit, err)
		}
	}
}

// Kill kills the server without a graceful shutdown.
func (s *Server) Kill() {
	s.mu.Lock()
	p := s.now
	s.now = nil
	s.mu.Unlock()
	if p == nil {
		return
	}
	close(p.asked)
	_ = p.life.Close()
	<-p.ended
}

// Up reports whether the server was started and not killed.
func (s *Server) Up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now != nil
}

// Pause stops the process: connections stay open, and no request is answered. It returns when the
// process is stopped. Until the signal is handled, its other threads still answer.
func (s *Server) Pause() {
	s.t.Helper()
	pid := strconv.Itoa(s.signal(syscall.SIGSTOP))
	locktest.Eventually(s.t, s.String()+" is stopped", func() bool {
		state, _ := exec.Command("ps", "-o", "state=", "-p", pid).Output()
		return bytes.HasPrefix(bytes.TrimSpace(state), []byte("T"))
	})
}

// Resume ends a pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) (pid int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		s.t.Fatalf("%s is down", s)
	}
	if err := syscall.Kill(s.now.pid, signal); err != nil {
		s.t.Fatalf("%s: %v: %v", s, signal, err)
	}
	return s.now.pid
}

// tail returns the last 20 lines of the server's log.
func (s *Server) tail() string {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// Redis is a redis-server with additional settings.
func Redis(settings ...string) Program {
	return Program{
		Name: "redis-server", Env: "SHOP_REDIS_SERVER",
		Args: func(s *Server) []string {
			_, port, _ := net.SplitHostPort(s.Addr)
			return append(settings[:len(settings):len(settings)], "--port", port, "--bind", "127.0.0.1", "--dir", s.Dir, "--save", "", "--loglevel", "warning")
		},
		Ready: func(ctx context.Context, s *Server) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			answer := make([]byte, 5)
			if _, err = io.WriteString(conn, "PING\r\n"); err == nil {
				_, err = io.ReadFull(conn, answer)
			}
			if err == nil && string(answer) != "+PONG" {
				err = fmt.Errorf("the answer to PING is %q", answer)
			}
			return err
		},
	}
}

// Durable are the settings of a Redis that loses nothing that it has acknowledged.
var Durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// Mongod is a mongod of the replica set rs, which ready has to initiate.
func Mongod(ready func(ctx context.Context, s *Server) error) Program {
	return Program{
		Name: "mongod", Env: "SHOP_MONGOD_SERVER", Ready: ready,
		Args: func(s *Server) []string {
			host, port, _ := net.SplitHostPort(s.Addr)
			return []string{
				"--bind_ip", host, "--port", port, "--nounixsocket", "--dbpath", s.Dir, "--replSet", "rs", "--oplogSize", "16",
				"--wiredTigerCacheSizeGB", "0.25", "--setParameter", "enableTestCommands=1", "--quiet",
			}
		},
	}
}

// StartEtcd starts an etcd of n members with additional flags.
func StartEtcd(t testing.TB, n int, flags ...string) []*Server {
	t.Helper()
	names, peers := map[*Server]string{}, map[*Server]string{}
	var all []*Server
	var cluster []string
	p := Program{
		Name: "etcd", Env: "SHOP_ETCD_SERVER", Ready: etcdReady,
		Args: func(s *Server) []string {
			return []string{
				"--name", names[s], "--data-dir", s.Dir, "--log-level", "error",
				"--listen-client-urls", "http://" + s.Addr, "--advertise-client-urls", "http://" + s.Addr,
				"--listen-peer-urls", peers[s], "--initial-advertise-peer-urls", peers[s],
				"--initial-cluster", strings.Join(cluster, ","),
			}
		},
	}
	for i := range n {
		s := NewServer(t, p)
		s.Flags = flags
		names[s], peers[s] = "m"+strconv.Itoa(i), "http://"+FreeAddr(t)
		cluster = append(cluster, names[s]+"="+peers[s])
		all = append(all, s)
	}
	for _, s := range all {
		s.Spawn()
	}
	for _, s := range all {
		s.Await()
	}
	return all
}

// etcdReady sends a request that needs a leader and a quorum.
func etcdReady(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+"/health", nil)
	if err != nil {
		return err
	}
	r.Close = true // or a goroutine would keep the connection
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// FreeAddr returns a loopback address that stays free until the test ends, even while its
// server is down. Its port is outside of the system's ephemeral range, and the UDP port
// with the same number reserves it against other processes that call FreeAddr.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(5_000)))
		if _, taken := addrs.LoadOrStore(addr, true); taken {
			continue
		}
		reserved, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		if listener, err := net.Listen("tcp", addr); err == nil {
			_ = listener.Close()
			t.Cleanup(func() { _ = reserved.Close() })
			return addr
		}
		_ = reserved.Close()
	}
	t.Fatal("no free port from 10000 to 14999")
	return ""
}

var addrs sync.Map // addresses that FreeAddr has returned in this process

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
