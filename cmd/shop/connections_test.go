// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"shop/locking/locktest"
)

// bounded is a server within limits, whose handler of /slow waits for a release.
type bounded struct {
	t       *testing.T
	conns   *connections
	address string
	release chan struct{}
}

func serveBounded(t *testing.T, limits connLimits) *bounded {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bounded{t: t, conns: newConnections(l, limits, slog.New(slog.DiscardHandler)), address: l.Addr().String(), release: make(chan struct{})}
	server := &http.Server{ConnState: b.conns.state, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-b.release
		}
	})}
	go func() { _ = server.Serve(b.conns) }()
	t.Cleanup(func() { server.Close() })
	return b
}

// connect opens a connection from an address of this machine, and sends a request.
func (b *bounded) connect(from, path string) net.Conn {
	b.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(b.t.Context(), "tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: shop\r\n\r\n", path)
	return conn
}

// answered reports whether the request of a connection gets an answer.
func answered(conn net.Conn) bool {
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// quick opens an idle connection: its request is answered.
func (b *bounded) quick(from string) net.Conn {
	b.t.Helper()
	conn := b.connect(from, "/")
	if !answered(conn) {
		b.t.Errorf("no answer to %s", from)
	}
	locktest.Eventually(b.t, "idle", func() bool {
		b.conns.mu.Lock()
		defer b.conns.mu.Unlock()
		known := 0
		for _, c := range b.conns.open {
			if c.idle != nil {
				known++
			}
		}
		return known == b.conns.idle.Len() && b.conns.idle.Len() > 0
	})
	return conn
}

func (b *bounded) opened(from string) int {
	b.conns.mu.Lock()
	defer b.conns.mu.Unlock()
	n := 0
	for prefix, count := range b.conns.count {
		if prefix.Addr().String() == from {
			n = count
		}
	}
	return n
}

func TestConnections_IdleOnesOfAnAddressMakeRoomForItsNext(t *testing.T) {
	b := serveBounded(t, connLimits{all: 8, each: 4})
	other := b.quick("127.0.0.2")
	for range 20 {
		b.quick("127.0.0.1")
	}
	if n := b.opened("127.0.0.1"); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}
	fmt.Fprint(other, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
	if !answered(other) {
		t.Error("the connection of another address was closed")
	}
	if n := testutil.ToFloat64(b.conns.shed.WithLabelValues("address")); n != 16 {
		t.Errorf("%v counted, want 16", n)
	}
}

func TestConnections_IdleOnesOfAllMakeRoomForTheNext(t *testing.T) {
	b := serveBounded(t, connLimits{all: 6, each: 4})
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		for range 4 {
			b.quick(from)
		}
	}
	if n := b.opened("127.0.0.1") + b.opened("127.0.0.2") + b.opened("127.0.0.3"); n != 6 {
		t.Errorf("%d connections, want 6", n)
	}
	if n := testutil.ToFloat64(b.conns.shed.WithLabelValues("all")); n == 0 {
		t.Error("none is counted")
	}
}

// A request at work is never cut. The connection that is too many is closed at once.
func TestConnections_AtWorkStayAndTheNewOneIsClosed(t *testing.T) {
	b := serveBounded(t, connLimits{all: 4, each: 2})
	first, second := b.connect("127.0.0.1", "/slow"), b.connect("127.0.0.1", "/slow")
	locktest.Eventually(t, "both are at work", func() bool { return b.opened("127.0.0.1") == 2 })
	if answered(b.connect("127.0.0.1", "/")) {
		t.Error("a third connection was served")
	}
	if !answered(b.connect("127.0.0.2", "/")) {
		t.Error("another address was locked out")
	}
	close(b.release)
	if !answered(first) || !answered(second) {
		t.Error("a request at work was cut")
	}
}

// An IPv6 /64 is one machine's.
func TestConnections_ARemoteAddressIsAnIPv4AddressOrAnIPv6Network(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7/32", "[::ffff:192.0.2.7]:1": "192.0.2.7/32", "[2001:db8::1:2:3:4]:1": "2001:db8::/64",
	} {
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := remote(addressed{at: at}).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

type addressed struct {
	net.Conn
	at net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.at }

// 256 files are fewer than the connections of one client that has no key.
func TestServe_IdleConnectionsLockNoOneOut(t *testing.T) {
	locktest.Slow(t, processes)
	url, keys := newDatabase(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 256; exec "$0" "$@"`, os.Args[0],
		"serve", "--listen=127.0.0.1:0", "--metrics-listen=", "--strategy=row", "--mongo-url=", "--lock-prefix", t.Name(), "--postgres-url", url)
	r := &replica{t: t, key: keys["alice"], log: &lines{}, end: make(chan error, 1)}
	cmd.Env, cmd.Stderr = append(os.Environ(), asShop+"=1"), r.log
	must(t, cmd.Start)
	go func() { r.end <- cmd.Wait() }()
	r.awaitServing()
	r.url = fmt.Sprintf("http://%s", r.log.find("serving")["address"])
	for range 400 {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(r.url, "http://"), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: shop\r\n\r\n")
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.ReadFull(conn, make([]byte, 12))
	}
	bought := make(chan int, 1)
	go func() {
		status, _ := r.buy("k")
		bought <- status
	}()
	select {
	case status := <-bought:
		if status != 201 {
			t.Errorf("a purchase: %d", status)
		}
	case <-time.After(10 * time.Second):
		t.Error("a purchase has no answer after 10 s")
	}
	if strings.Contains(r.log.String(), "too many open files") {
		t.Error("the open files are used up")
	}
	must(t, func() error { return cmd.Process.Signal(os.Interrupt) })
	if err := <-r.end; err != nil {
		t.Error(err)
	}
}

func TestServe_TooFewFilesAreRefusedAtTheStart(t *testing.T) {
	url, _ := newDatabase(t)
	_, err := shop(t, "serve", "--listen=127.0.0.1:0", "--metrics-listen=", "--strategy=row", "--mongo-url=", "--lock-prefix", t.Name(), "--postgres-url", url, "--max-conns=1000000000")
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "--max-conns") || !strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
}

func TestServe_AConnectionMayBeIdleForLongerThanAtCommonProxies(t *testing.T) {
	out, err := shop(t, "serve", "--help")
	if err != nil || !strings.Contains(out, "--idle-timeout=75s") { // those close after 60 s
		t.Errorf("%v\n%s", err, out)
	}
	s := startServing(t, lifecycle{drain: func() {}, timeout: time.Minute, idle: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /now HTTP/1.1\r\nHost: shop\r\n\r\n")
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the setting closes no idle connection: %v", err)
	}
	s.stop()
	if err := <-s.end; err != nil {
		t.Error(err)
	}
}
