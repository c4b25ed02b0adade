// SPDX-License-Identifier: MIT

// Package redistest has the Redis servers of the tests of locks in Redis: a shared one, a Cluster, Sentinels, a proxy.
package redistest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// URL is the URL of the server on which the tests run.
func URL(t testing.TB) string { t.Helper(); return servertest.Env(t, "SHOP_REDIS_URL") }

// Prefix returns a prefix for this test alone, and removes the keys under it when
// the test ends, because fence counters have no TTL.
func Prefix(t testing.TB, u string) string {
	t.Helper()
	prefix := "test-" + rand.Text()
	t.Cleanup(func() {
		ctx, client := context.Background(), redis.NewClient(&redis.Options{Addr: Host(t, u), MaxRetries: -1, DialerRetries: 1})
		defer client.Close()
		names := client.Scan(ctx, 0, prefix+"*", 10_000).Iterator()
		for names.Next(ctx) {
			client.Del(ctx, names.Val())
		}
	})
	return prefix
}

func Host(t testing.TB, u string) string {
	t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Host
}

// Proxy makes a proxy that disturbs lock requests, which are all scripts.
func Proxy(t testing.TB, addr string) *servertest.Faults {
	t.Helper()
	return servertest.NewFaults(t, addr, func(request []byte) bool { return bytes.Contains(request, []byte("eval")) })
}

// Cluster starts a Cluster of n nodes, each with an equal part of the slots.
func Cluster(t testing.TB, n int) (nodes []*servertest.Server) {
	t.Helper()
	var first *redis.Client
	for i := range n {
		_, bus, _ := net.SplitHostPort(servertest.FreeAddr(t))
		s := servertest.Start(t, daemon.Redis(append([]string{"--cluster-enabled", "yes", "--cluster-port", bus}, daemon.Durable...)...))
		nodes = append(nodes, s)
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer client.Close()
		if i == 0 {
			first = client
		}
		host, port, _ := net.SplitHostPort(s.Addr)
		if err := client.ClusterAddSlotsRange(t.Context(), 16384*i/n, 16384*(i+1)/n-1).Err(); err != nil {
			t.Fatal(err)
		}
		if err := first.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err(); i > 0 && err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range nodes {
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer client.Close()
		locktest.Eventually(t, "the cluster", func() bool {
			info := client.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(n))
		})
	}
	return nodes
}

// Sentinel starts a Sentinel that monitors master with a quorum. It does not
// take a slow master for down, until Suspect lowers its threshold.
func Sentinel(t testing.TB, master *servertest.Server, quorum string) *servertest.Server {
	t.Helper()
	return servertest.Start(t, daemon.Sentinel(func(*daemon.Instance) []string {
		return []string{
			"sentinel monitor mymaster " + strings.Replace(master.Addr, ":", " ", 1) + " " + quorum,
			"sentinel down-after-milliseconds mymaster 60000",
			"sentinel failover-timeout mymaster 3000",
		}
	}))
}

// Suspect makes a sentinel replace its master after a second without an answer from it.
func Suspect(t *testing.T, sentinel *servertest.Server) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer client.Close()
	if err := client.Set(t.Context(), "mymaster", "down-after-milliseconds", "1000").Err(); err != nil {
		t.Fatal(err)
	}
}

func Replicated(t testing.TB, replica *servertest.Server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer client.Close()
	locktest.Eventually(t, "the replica is synchronized", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// Knows waits until sentinel knows the master and all of its replicas.
func Knows(t testing.TB, sentinel *servertest.Server, count int) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer client.Close()
	locktest.Eventually(t, "the sentinel knows the replicas", func() bool {
		replicas, err := client.Replicas(t.Context(), "mymaster").Result()
		return err == nil && len(replicas) == count && !slices.ContainsFunc(replicas, func(r map[string]string) bool {
			return r["master-link-status"] != "ok"
		})
	})
}

// Refusals counts the errors of a client by their first word.
type Refusals struct {
	mu sync.Mutex
	n  map[string]int
}

// NewRefusals makes a Refusals, a hook of a client.
func NewRefusals() *Refusals { return &Refusals{n: map[string]int{}} }

func (r *Refusals) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.n)
}

// ProcessHook is a hook of a client.
func (r *Refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply := redis.Error(nil); errors.As(err, &reply) {
			word, _, _ := strings.Cut(reply.Error(), " ")
			r.mu.Lock()
			defer r.mu.Unlock()
			r.n[word]++
		}
		return err
	}
}
func (r *Refusals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *Refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Of counts the refusals with a word.
func (r *Refusals) Of(word string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[word]
}

// Node is a node of a Cluster.
type Node struct {
	*redis.Client
	t    testing.TB
	addr string
	ID   string
}

func NodeAt(t testing.TB, addr string) Node {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return Node{client, t, addr, client.Do(t.Context(), "CLUSTER", "MYID").String()[len("CLUSTER MYID: "):]}
}

// Must sends a command.
func (n Node) Must(args ...any) {
	n.t.Helper()
	if err := n.Do(n.t.Context(), args...).Err(); err != nil {
		n.t.Fatalf("%v: %v", args, err)
	}
}

// MoveKeys moves all keys of a slot to another Node, as redis-cli --cluster reshard does.
func (n Node) MoveKeys(slot int, to Node) {
	n.t.Helper()
	host, port, _ := strings.Cut(to.addr, ":")
	for {
		keys, err := n.ClusterGetKeysInSlot(n.t.Context(), slot, 100).Result()
		if err != nil {
			n.t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		n.Must(args...)
	}
}

// Owns reports whether a Node serves a slot.
func Owns(t testing.TB, n Node, slot int) bool {
	t.Helper()
	shards, err := n.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
		return slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }) &&
			slices.ContainsFunc(s.Nodes, func(m redis.Node) bool { return m.ID == n.ID && m.Role == "master" })
	})
}

// User makes a user who may do everything except what the rules forbid.
func User(t *testing.T, rules ...any) (url string) {
	t.Helper()
	user := strings.ToLower(Prefix(t, URL(t)))
	rules = append([]any{"ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"}, rules...)
	if err := do(t, t.Context(), rules...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // t.Context() has ended
		if err := do(t, context.Background(), "ACL", "DELUSER", user); err != nil {
			t.Error(err)
		}
	})
	return "redis://" + user + ":secret@" + Host(t, URL(t))
}

func do(t *testing.T, ctx context.Context, args ...any) error {
	client := redis.NewClient(&redis.Options{Addr: Host(t, URL(t))})
	defer client.Close()
	return client.Do(ctx, args...).Err()
}

// Target is a kind of Redis to run on.
type Target struct {
	URL       string   // of the server: a node that has all the keys, the master
	Cluster   bool     // the server is a node of a Cluster
	Tag       string   // the hash tag whose keys the node has; "": it has all
	Sentinels []string // of the server
	Proxy     *servertest.Faults

	// Start starts another such Redis, and returns the server that has the keys.
	Start func(testing.TB) (Target, *servertest.Server)
}

// Shared is the server on which the tests run.
func Shared(t testing.TB) Target {
	t.Helper()
	return Target{URL: URL(t), Start: Single}
}

// Single starts a server that keeps its data.
func Single(t testing.TB) (Target, *servertest.Server) {
	t.Helper()
	s := servertest.Start(t, daemon.Redis(daemon.Durable...))
	return Target{URL: "redis://" + s.Addr, Start: Single}, s
}

// OneNode starts a Cluster of one node.
func OneNode(t testing.TB) (Target, *servertest.Server) {
	t.Helper()
	s := Cluster(t, 1)[0]
	return Target{URL: "redis://" + s.Addr, Cluster: true, Start: OneNode}, s
}

// Tag is the hash tag of the tests with several nodes.
const Tag = "accounts"

// ThreeNodes starts a Cluster of three nodes. The target, and the node, is the one that has the keys of Tag.
func ThreeNodes(t testing.TB) (Target, *servertest.Server) {
	t.Helper()
	nodes := Cluster(t, 3)
	client := redis.NewClient(&redis.Options{Addr: nodes[0].Addr})
	defer client.Close()
	owner := 2
	for client.ClusterKeySlot(t.Context(), Tag).Val() < int64(16384*owner/3) {
		owner--
	}
	s := nodes[owner]
	return Target{URL: "redis://" + s.Addr, Cluster: true, Tag: Tag, Start: ThreeNodes}, s
}

// Sentinels starts a master with two replicas and three sentinels.
func Sentinels(t testing.TB) (g Target, master *servertest.Server) {
	t.Helper()
	master = servertest.Start(t, daemon.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, daemon.Durable...)...))
	for range 2 {
		Replicated(t, servertest.Start(t, daemon.Redis("--replicaof", strings.Replace(master.Addr, ":", " ", 1))))
	}
	g = Target{URL: "redis://" + master.Addr, Start: Sentinels}
	for range 3 {
		sentinel := Sentinel(t, master, "2")
		Knows(t, sentinel, 2)
		g.Sentinels = append(g.Sentinels, sentinel.Addr)
	}
	return g, master
}

// Client makes a client that tune has tuned. With a proxy, it connects to it instead of to the server.
func (g Target) Client(t testing.TB, tune func(*redis.UniversalOptions) *redis.UniversalOptions) redis.UniversalClient {
	t.Helper()
	server := Host(t, g.URL)
	o := tune(&redis.UniversalOptions{Addrs: []string{server}, IsClusterMode: g.Cluster})
	if g.Sentinels != nil {
		o.MasterName, o.Addrs = "mymaster", g.Sentinels
	}
	if g.Proxy != nil {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == server { // nodes and sentinels report the server's own address
				addr = g.Proxy.Addr
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Backend returns a locktest.Backend with the stores that open makes, of a client and of the prefix of this backend.
func (g Target) Backend(t testing.TB, tune func(time.Duration) func(*redis.UniversalOptions) *redis.UniversalOptions,
	open func(client redis.UniversalClient, ttl time.Duration, prefix string) (locking.Store, error),
) locktest.Backend {
	t.Helper()
	prefix := Prefix(t, g.URL)
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return open(g.Client(t, tune(ttl)), ttl, prefix) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			p := Proxy(t, Host(t, g.URL))
			through := g
			through.Proxy = p
			store, err := open(through.Client(t, tune(ttl)), ttl, prefix)
			if err != nil {
				t.Fatal(err)
			}
			return servertest.Disturbed(store, p)
		},
		Restartable: func() (locktest.Backend, func()) {
			own, s := g.Start(t)
			return own.Backend(t, tune, open), s.Restart
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}
