package etcdlock

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
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// member is an etcd of one test, which may kill it: alone, or one of several.
type member struct {
	t            testing.TB
	name         string
	client, peer string // host:port
	dir          string
	cluster      string
	flags        []string
	log          bytes.Buffer

	cmd  *exec.Cmd
	life io.Closer // closing it kills the server
}

// startCluster starts n members on free ports of the loopback, with these flags
// besides, and stops them when the test ends.
func startCluster(t testing.TB, n int, flags ...string) []*member {
	t.Helper()
	var all []*member
	var initial []string
	for i := range n {
		m := &member{t: t, name: "m" + strconv.Itoa(i), client: freeAddr(t), peer: freeAddr(t), dir: t.TempDir(), flags: flags}
		all = append(all, m)
		initial = append(initial, m.name+"=http://"+m.peer)
	}
	for _, m := range all {
		m.cluster = strings.Join(initial, ",")
		t.Cleanup(m.kill)
		m.spawn()
	}
	for _, m := range all {
		m.wait()
	}
	return all
}

func startServer(t testing.TB, flags ...string) *member {
	t.Helper()
	return startCluster(t, 1, flags...)[0]
}

// spawn runs the server under a shell that kills it as soon as the pipe to us
// closes: when we say so, and also when this process dies in whatever way.
func (m *member) spawn() {
	m.t.Helper()
	const guard = `trap "" INT TERM; "$@" & child=$!; read -r _; kill -9 $child; wait $child`
	m.cmd = exec.Command("sh", append([]string{
		"-c", guard, "guard", etcdServer(m.t),
		"--name", m.name, "--data-dir", m.dir, "--log-level", "error",
		"--listen-client-urls", "http://" + m.client, "--advertise-client-urls", "http://" + m.client,
		"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peer,
		"--initial-cluster", m.cluster,
	}, m.flags...)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	life, err := m.cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	m.life = life
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
}

// wait returns when the member answers a read that needs a leader and a quorum.
func (m *member) wait() {
	m.t.Helper()
	client := dial(m.t, m.client)
	defer client.Close()
	waitFor(m.t, "etcd on "+m.client, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := client.Get(ctx, "ready")
		return err == nil
	})
}

// kill stops the server without letting it say good-bye.
func (m *member) kill() {
	if m.cmd == nil {
		return
	}
	_ = m.life.Close()
	_ = m.cmd.Wait()
	m.cmd = nil
	if m.t.Failed() {
		m.t.Logf("etcd on %s said:\n%s", m.client, m.log.String())
	}
}

// start starts it on the data it left.
func (m *member) start() {
	m.spawn()
	m.wait()
}

func (m *member) restart() {
	m.kill()
	m.start()
}

func etcdServer(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("SHOP_ETCD_SERVER"), "etcd"))
	if err != nil {
		t.Fatalf("this test starts a server of its own and found none: install etcd, or set SHOP_ETCD_SERVER to its path: %v", err)
	}
	return path
}

// dial makes a client of its own.
func dial(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(quiet(endpoints...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// quiet is Config for a client that says nothing of what a test does to it.
func quiet(endpoints ...string) clientv3.Config {
	config := Config(endpoints...)
	config.Logger = zap.NewNop()
	return config
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
