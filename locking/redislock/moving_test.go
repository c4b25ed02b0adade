package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// refusals counts the errors of a client by their first word.
type refusals struct {
	mu sync.Mutex
	n  map[string]int
}

func (r *refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
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
func (r *refusals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *refusals) of(word string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[word]
}

// node is a node of a Cluster.
type node struct {
	*redis.Client
	t    testing.TB
	addr string
	id   string
}

func nodeAt(t testing.TB, addr string) node {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return node{client, t, addr, client.Do(t.Context(), "CLUSTER", "MYID").String()[len("CLUSTER MYID: "):]}
}

func (n node) must(args ...any) {
	n.t.Helper()
	if err := n.Do(n.t.Context(), args...).Err(); err != nil {
		n.t.Fatalf("%v: %v", args, err)
	}
}

// moveKeys moves all keys of a slot to another node, as redis-cli --cluster reshard does.
func (n node) moveKeys(slot int, to node) {
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
		n.must(args...)
	}
}

// A slot of a Cluster moves from node to node and back, while three clients use a lock in it. Requests are refused for as
// long as it moves. The clients wait, as long as their MaxWait allows, and exclude each other throughout.
func TestCluster_ClientsWaitWhileTheirSlotMoves(t *testing.T) {
	locktest.Slow(t, "starts a Cluster")
	t.Parallel()
	servers := startCluster(t, 2)
	nodes := [2]node{nodeAt(t, servers[0].Addr), nodeAt(t, servers[1].Addr)}
	all := map[string]func(redis.UniversalClient, time.Duration, Options) (closing, error){
		"store": func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) { return New(c, ttl, o) },
		"reader": func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
			rw, err := NewRW(c, ttl, o)
			if err != nil {
				return nil, err
			}
			return rw.Read, nil
		},
	}
	for kind, open := range kinds {
		all[kind] = open
	}
	for kind, open := range all {
		t.Run(kind, func(t *testing.T) {
			g := target{url: "redis://" + servers[0].Addr, cluster: true, kind: open, options: Options{HashTag: tag}}
			keys := []string{"a", "b"}
			if kind != "store" {
				keys = keys[:1]
			}
			g.worksWhileMoving(t, nodes, kind, keys)
		})
	}
}

func (g target) worksWhileMoving(t *testing.T, nodes [2]node, kind string, keys []string) {
	const ttl = 10 * time.Second
	g.options.Prefix = newPrefix(t, g.url)
	seen := &refusals{n: map[string]int{}}
	client := g.client(t, ttl)
	client.AddHook(seen)
	var (
		inside, grants atomic.Int64
		fence          atomic.Int64
		workers        sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	for range 3 {
		store, err := g.store(t, client, ttl)
		if err != nil {
			t.Fatal(err)
		}
		workers.Go(func() {
			for ctx.Err() == nil {
				err := locking.Do(ctx, store, locking.Options{MaxWait: 30 * time.Second}, keys, func(_ context.Context, l locking.Lease) error {
					defer inside.Add(-1)
					if inside.Add(1) > 1 && kind != "reader" {
						return errors.New("two holders")
					}
					if last := fence.Swap(int64(l.Fence)); promisesOf(kind).Fences && kind != "reader" && int64(l.Fence) <= last {
						return fmt.Errorf("fence %d after %d", l.Fence, last)
					}
					grants.Add(1)
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer func() {
		stop()
		workers.Wait()
		t.Logf("%d grants, %v", grants.Load(), seen.n)
	}()
	progress := func(when string) {
		t.Helper()
		before := grants.Load()
		locktest.Eventually(t, "grants "+when, func() bool { return t.Failed() || grants.Load() > before+3 })
	}
	// A queue has its keys as long as requests are in it: then the node that has them grants, and refuses nothing.
	refused := func(word, when string) {
		t.Helper()
		refusals, granted := seen.of(word), grants.Load()
		locktest.Eventually(t, word+" "+when, func() bool {
			return t.Failed() || seen.of(word) > refusals+3 || word == "TRYAGAIN" && kind != "store" && grants.Load() > granted+3
		})
	}
	slot := int(nodes[0].ClusterKeySlot(t.Context(), tag).Val())
	from, to := nodes[0], nodes[1]
	if !owns(t, from, slot) {
		from, to = to, from
	}
	progress("before")
	for range 2 {
		to.must("CLUSTER", "SETSLOT", slot, "IMPORTING", from.id)
		from.must("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
		refused("TRYAGAIN", "at the node that has the fence, and not the lock")
		if kind == "store" {
			g.wantReason(t, client, ttl)
		}
		from.moveKeys(slot, to)
		refused("TRYAGAIN", "at the node that gets them")
		from.must("CLUSTER", "SETSLOT", slot, "NODE", to.id)
		refused("MOVED", "from each node to the other")
		to.must("CLUSTER", "SETSLOT", slot, "NODE", to.id)
		progress("after the slot has moved")
		from, to = to, from
	}
	from.must("CLUSTER", "DELSLOTS", slot)
	refused("CLUSTERDOWN", "without a node for the slot")
	from.must("CLUSTER", "ADDSLOTS", slot)
	progress("with a node for the slot")
}

// wantReason checks that a request for one time says why it was refused: no other client holds the key.
func (g target) wantReason(t *testing.T, client redis.UniversalClient, ttl time.Duration) {
	t.Helper()
	store, err := g.store(t, client, ttl)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.TryAcquire(t.Context(), "free")
	if !errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "TRYAGAIN") || strings.Contains(err.Error(), locking.ErrBusy.Error()) {
		t.Errorf("got %v, want ErrBusy, because the slot is moving", err)
	}
}

// owns reports whether a node serves a slot.
func owns(t testing.TB, n node, slot int) bool {
	t.Helper()
	shards, err := n.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
		return slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }) &&
			slices.ContainsFunc(s.Nodes, func(m redis.Node) bool { return m.ID == n.id && m.Role == "master" })
	})
}
