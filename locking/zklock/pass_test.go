package zklock

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/locktest"
)

// Goal: a hand-off costs as few requests as the package's comment says, and grants no key whose waiter, or whose
// holder, is another one than the Store believes. Method: a Store whose requests are counted, nodes that are
// deleted by an operator, and lost answers.

// The operations of ZooKeeper's protocol that are counted, besides those of proxy_test.go.
const opExists, opGetData, opGetChildren = 3, 4, 12

// counts are those of the requests for nodes of keys, by their operation.
type counts [128]atomic.Int64

// counting is a connection whose requests are counted.
type counting struct {
	net.Conn
	*counts
}

func (c counting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("/key:")) {
		c.counts[binary.BigEndian.Uint32(b[opOffset:])].Add(1)
	}
	return c.Conn.Write(b)
}

// counted are the requests since the last count.
type counted struct{ transactions, deletions, reads, lists int64 }

func (c *counts) count() counted {
	return counted{c[opMulti].Swap(0), c[opDelete].Swap(0), c[opExists].Swap(0), c[opGetChildren].Swap(0)}
}

// awaitWatch waits until a node of another Store is watched, as ZooKeeper sees it.
func (c *counts) awaitWatch(t *testing.T, s *Store) {
	t.Helper()
	locktest.Eventually(t, "a watch is requested", func() bool { return c[opGetData].Load() > 0 })
	locktest.Released(t, s, locktest.Taken(t, s, "other")) // requests are answered in their order
}

// counted makes a Store whose requests are counted.
func (g target) counted(t *testing.T) (*Store, *counts) {
	c := &counts{}
	s, err := New(t.Context(), g.servers, time.Minute, Options{
		Prefix: g.prefix,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return counting{conn, c}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, c
}

// The waiter of the same Store gets the key from the transaction that releases it, in the order of arrival.
func TestRelease_PassesTheKeyInOneTransaction(t *testing.T) {
	t.Parallel()
	s, requests := shared(t).counted(t)
	held := locktest.Taken(t, s, "k")
	second := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 2)
	awaitWatch(t, s)
	third := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 3)
	for _, next := range []<-chan granted{second, third} {
		awaitBehind(t, s, held, "")
		requests.count()
		before := time.Now()
		locktest.Released(t, s, held)
		got := <-next
		if got.error != nil || got.Fence <= held.Fence {
			t.Fatalf("%+v after %+v", got, held)
		}
		if sent := requests.count(); sent != (counted{transactions: 1}) {
			t.Errorf("%+v, want one transaction", sent)
		}
		if trust := got.Until.Sub(before); trust < s.ttl/2 || trust > s.ttl/2+time.Since(before) {
			t.Errorf("the trust of %v does not count from the release", trust)
		}
		held = got.Lease
	}
	locktest.Released(t, s, held)
	awaitNodes(t, s, 0)
}

// awaitBehind waits until a waiter of the Store is directly behind the holder; owner: which; empty: any.
func awaitBehind(t *testing.T, s *Store, held locking.Lease, owner string) {
	t.Helper()
	locktest.Eventually(t, "the waiter is behind the holder", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		behind := s.leases[held.Owner].behind
		return behind != nil && (owner == "" || behind.owner == owner)
	})
}

// awaitNodes waits until the Store knows n nodes of its own, and watches none.
func awaitNodes(t *testing.T, s *Store, n int) {
	t.Helper()
	locktest.Eventually(t, "the Store forgets its nodes", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.nodes) == n && len(s.watches) == 0
	})
}

// A waiter of another Store does not list the queue after the release, however many are behind it.
func TestRelease_TellsTheNextWaiterThatItIsFirst(t *testing.T) {
	t.Parallel()
	g := shared(t)
	waiting, requests := g.counted(t)
	a, b := g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	front := acquireInBackground(t.Context(), b, "k")
	awaitQueue(t, a, "k", 2)
	next := acquireInBackground(t.Context(), waiting, "k")
	awaitQueue(t, a, "k", 3)
	requests.awaitWatch(t, waiting)
	locktest.Released(t, a, held)
	second := <-front
	requests.count()
	locktest.Released(t, b, second.Lease)
	got := <-next
	if got.error != nil || got.Fence <= second.Fence {
		t.Fatalf("%+v after %+v", got, second)
	}
	if sent := requests.count(); sent != (counted{reads: 1}) {
		t.Errorf("%+v, want one read", sent)
	}
}

// An operator deletes the node of the waiter to which the key would be passed. It queues again.
func TestRelease_DoesNotPassTheKeyToADeletedNode(t *testing.T) {
	t.Parallel()
	s := shared(t).must(t, time.Minute)
	held := locktest.Taken(t, s, "k")
	next := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 2)
	awaitWatch(t, s)
	gone := queueIn(t, s, "k")[1]
	if err := s.conn.Delete(s.queueOf("k")+"/"+gone, -1); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, s, held)
	got := <-next
	if got.error != nil || strings.HasPrefix(gone, got.Owner) {
		t.Fatalf("the waiter: %+v, its first node was %s", got, gone)
	}
	if queue := queueIn(t, s, "k"); len(queue) != 1 || !strings.HasPrefix(queue[0], got.Owner) {
		t.Errorf("the queue is %q, the owner %s", queue, got.Owner)
	}
}

// The answer to the transaction that passes the key is lost. The waiter gets the key all the same, with its own node.
func TestRelease_LostAnswerToAPass(t *testing.T) {
	t.Parallel()
	g := shared(t)
	look := g.must(t, time.Minute)
	s, p := g.viaProxy(t, 6*time.Second)
	held := locktest.Taken(t, s, "k")
	next := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, look, "k", 2)
	awaitWatch(t, s)
	p.lose(1)
	locktest.Released(t, s, held)
	got := <-next
	if got.error != nil || p.Lost() == 0 || got.Fence <= held.Fence {
		t.Fatalf("the waiter: %+v after %+v, lost answers: %d", got, held, p.Lost())
	}
	if queue := queueIn(t, look, "k"); len(queue) != 1 || !strings.HasPrefix(queue[0], got.Owner) {
		t.Errorf("the queue is %q, the owner %s", queue, got.Owner)
	}
}

// A holder that does not renew is followed by the waiter of its Store when its Until is past, and not before.
func TestExpiry_PassesTheKey(t *testing.T) {
	t.Parallel()
	s := shared(t).must(t, 2*minTTL)
	held := locktest.Taken(t, s, "k")
	got := <-acquireInBackground(t.Context(), s, "k")
	if got.error != nil || time.Now().Before(held.Until) || got.Fence <= held.Fence {
		t.Errorf("%+v after %+v", got, held)
	}
}

// A release to another Store is one transaction.
func TestRelease_ToAnotherStoreIsOneTransaction(t *testing.T) {
	t.Parallel()
	g := shared(t)
	waiting, watched := g.counted(t)
	s, requests := g.counted(t)
	held := locktest.Taken(t, s, "k")
	next := acquireInBackground(t.Context(), waiting, "k")
	awaitQueue(t, s, "k", 2)
	watched.awaitWatch(t, waiting)
	requests.count()
	locktest.Released(t, s, held)
	if sent := requests.count(); sent != (counted{transactions: 1}) {
		t.Errorf("%+v, want one transaction", sent)
	}
	got := <-next
	locktest.Released(t, waiting, got.Lease)
	awaitNodes(t, waiting, 0)
	awaitNodes(t, s, 0)
}

// The trust of a lease that was passed counts from the sending of the release, and not from its answer.
func TestRelease_PassIsTrustedFromItsSending(t *testing.T) {
	t.Parallel()
	s, p := shared(t).viaProxy(t, 6*time.Second)
	held := locktest.Taken(t, s, "k")
	next := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 2)
	awaitBehind(t, s, held, "")
	p.writes.Store(true)
	p.Delay(500 * time.Millisecond)
	before := time.Now()
	locktest.Released(t, s, held)
	got := <-next
	p.Delay(0)
	if trust := got.Until.Sub(before); got.error != nil || trust > s.ttl/2+250*time.Millisecond {
		t.Errorf("%+v is trusted for %v", got, trust)
	}
}

// Two waiters wait for the same node, since an operator has deleted that of the first. Only the second is granted the key.
func TestRelease_PassesTheKeyToOneWaiterOnly(t *testing.T) {
	t.Parallel()
	s := shared(t).must(t, time.Minute)
	held := locktest.Taken(t, s, "k")
	first := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 2)
	awaitBehind(t, s, held, "")
	if err := s.conn.Delete(s.queueOf("k")+"/"+queueIn(t, s, "k")[1], -1); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, s, locktest.Taken(t, s, "other")) // or the second would wait for the first
	second := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 2)
	owner, _, _ := strings.Cut(queueIn(t, s, "k")[1], "-")
	awaitBehind(t, s, held, owner)
	locktest.Released(t, s, held)
	got := <-second
	if got.error != nil || got.Owner != owner {
		t.Fatalf("%+v, want the owner %s", got, owner)
	}
	awaitQueue(t, s, "k", 2) // the first is behind
	select {
	case other := <-first:
		t.Fatalf("a second holder: %+v", other)
	default:
	}
	locktest.Released(t, s, got.Lease)
	if got := <-first; got.error != nil {
		t.Error(got.error)
	}
}

// A request watches a node of its own Store in ZooKeeper, since the answer to the node's creation was late. The waiters
// that come later are passed the key all the same.
func TestRelease_PassesTheKeyOfANodeThatIsWatched(t *testing.T) {
	t.Parallel()
	s := shared(t).must(t, time.Minute)
	locktest.Released(t, s, locktest.Taken(t, s, "k"))
	x, err := s.ready(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{store: s, session: x, key: "k", queue: s.queueOf("k"), owner: rand.Text()}
	if err := n.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leaves := acquireInBackground(ctx, s, "k")
	awaitWatch(t, s)
	locktest.Released(t, s, locktest.Taken(t, s, "other")) // the watch is set
	n.follow()
	held, _ := s.grant(n)
	next := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 3)
	owner, _, _ := strings.Cut(queueIn(t, s, "k")[2], "-")
	cancel()
	<-leaves
	awaitBehind(t, s, held, owner)
	locktest.Released(t, s, held)
	within(t, "the wait", func() {
		if got := <-next; got.error != nil || got.Fence <= held.Fence {
			t.Errorf("%+v after %+v", got, held)
		}
	})
}

// ZooKeeper refuses a release, until an operator allows it. It is repeated.
func TestRelease_ThatIsRefusedIsRepeated(t *testing.T) {
	t.Parallel()
	g := shared(t)
	s, operator := g.must(t, 2*minTTL), g.must(t, time.Minute)
	held := locktest.Taken(t, s, "k")
	next := acquireInBackground(t.Context(), s, "k")
	awaitQueue(t, s, "k", 2)
	awaitBehind(t, s, held, "")
	allow := func(permissions int32) {
		if _, err := operator.conn.SetACL(s.queueOf("k"), zk.WorldACL(permissions), -1); err != nil {
			t.Fatal(err)
		}
	}
	allow(zk.PermRead | zk.PermAdmin)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Release(ctx, held); !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
	allow(zk.PermAll)
	if got := <-next; got.error != nil || got.Fence <= held.Fence {
		t.Errorf("%+v after %+v", got, held)
	}
}
