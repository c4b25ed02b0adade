// SPDX-License-Identifier: MIT

// Package testbed has helpers for the tests of the engine and of the flows: databases with a lesson's
// tables, HTTP servers that answer like a service, and replicas that refuse everything. It does not import
// the engine, so the engine's own tests can use it.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
)

// Env returns the address of a server. It fails the test if the address is not set: nothing is skipped.
var Env = servertest.Env

// Build builds a program for all tests of a package, in a folder that the caller must remove. It exits if
// the build fails.
func Build(of string) (program, folder string) {
	folder, err := os.MkdirTemp("", "testbed")
	if err == nil {
		program = filepath.Join(folder, path.Base(of))
		build := exec.Command("go", "build", "-o", program, of)
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "build %s: %v\n", of, err)
		os.Exit(1)
	}
	return program, folder
}

// Connect connects to a database until the test ends.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Schema returns a connection to a new schema with a lesson's tables.
func Schema(t testing.TB, lesson string) *pgx.Conn {
	t.Helper()
	conn := Connect(t, pgtest.Schema(t))
	pgtest.Migrate(t, conn, lesson)
	return conn
}

// Exec runs statements, also when the test has ended.
func Exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatalf("%v in:\n%s", err, sql)
	}
}

// Serve starts n servers with one handler, and returns their URLs.
func Serve(t testing.TB, n int, handler http.HandlerFunc) (bases []string) {
	t.Helper()
	for range n {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		bases = append(bases, server.URL)
	}
	return bases
}

// Problem answers with a problem type, like the service.
func Problem(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"type":"/problems/%s","title":"?","status":%d}`, kind, status)
}

// Created answers with an id.
func Created(w http.ResponseWriter, id string) {
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":%q}`, id)
}

// asReplica as the first argument makes a test binary a replica: it serves /readyz and /metrics, refuses
// every order, and exits on SIGTERM.
const asReplica = "be-a-replica"

// Main runs the tests of a package, or a replica if the arguments are those of ReplicaArgs.
func Main(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asReplica {
		os.Exit(beReplica(os.Args[2], os.Args[3], os.Args[4]))
	}
	goleak.VerifyTestMain(m)
}

// ReplicaArgs returns the arguments that make a test binary a replica: one that works ("good"), one that
// exits at once ("broken"), one that kills itself ("suicide"), one that exits at its tenth order ("mortal"), or one that
// works and leaves a goroutine and an open file behind each request ("leaky").
func ReplicaArgs(mode string) func(n int, listen, metrics string) []string {
	return func(_ int, listen, metrics string) []string { return []string{asReplica, mode, listen, metrics} }
}

func beReplica(mode, listen, metrics string) int {
	if mode == "broken" {
		fmt.Fprintln(os.Stderr, "no database")
		return 1
	}
	if mode == "suicide" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "SHOP_") {
			fmt.Fprintln(os.Stderr, "inherited", setting)
			return 1
		}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "%s# TYPE go_goroutines gauge\ngo_goroutines %d\n", Metrics, runtime.NumGoroutine())
	})
	var (
		leak sync.Mutex
		left []*os.File // else they are closed when they are collected
	)
	var orders atomic.Int32
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, _ *http.Request) {
		if mode == "mortal" && orders.Add(1) == 10 {
			os.Exit(3)
		}
		if mode == "leaky" {
			leak.Lock()
			defer leak.Unlock()
			file, _ := os.Open(os.Args[0])
			left = append(left, file)
			go func() { <-make(chan struct{}) }()
		}
		Problem(w, http.StatusServiceUnavailable, "busy")
	})
	for _, addr := range []string{metrics, listen} { // a replica that answers /readyz has its metrics too
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		go func() { _ = http.Serve(l, mux) }()
	}
	<-ended
	return 0
}

// Metrics is the /metrics of such a replica.
const Metrics = `# TYPE inventory_events_total counter
inventory_events_total{kind="guard_tripped",strategy="redis+row"} 2
inventory_events_total{kind="guard_tripped",strategy="row"} 1
inventory_events_total{kind="something_new",strategy="row"} 9
# TYPE transfer_events_total counter
transfer_events_total{kind="fence_refused",strategy="etcd-fenced"} 5
# TYPE wallet_events_total counter
wallet_events_total{kind="conflict",strategy="lockid"} 6
# TYPE locking_events_total counter
locking_events_total{kind="busy",store="redis"} 40
locking_events_total{kind="busy",store="etcd"} 2
locking_events_total{kind="released",store="redis"} 7
# TYPE locking_wait_seconds histogram
locking_wait_seconds_bucket{store="redis",le="+Inf"} 3
locking_wait_seconds_sum{store="redis"} 1
locking_wait_seconds_count{store="redis"} 3
`

// Log records calls. The call named by Fails returns an error.
type Log struct {
	Done  []string
	Fails string
}

// Note records a call.
func (l *Log) Note(what string) error {
	l.Done = append(l.Done, what)
	if what == l.Fails {
		return errors.New("no")
	}
	return nil
}

// Server stands for a server that a fault kills and restarts.
type Server struct{ Log }

// Kill records the call.
func (s *Server) Kill(context.Context) error { return s.Note("kill") }

// Start records the call.
func (s *Server) Start(ctx context.Context) error { return errors.Join(s.Note("start"), ctx.Err()) }
