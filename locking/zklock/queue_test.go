// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// ZooKeeper deletes the container of a queue that is empty, and the sequence numbers start again. An
// operator may delete the prefix too. The fence still grows.
func TestFence_GrowsWhenTheSequenceStartsAgain(t *testing.T) {
	t.Parallel()
	g := shared(t)
	g.prefix += "/below"
	store := g.must(t, time.Minute)
	var last locking.Lease
	for _, deleted := range []string{"", store.queueOf("k"), store.queueOf("k"), g.prefix} {
		if deleted == g.prefix {
			err := store.conn.Delete(store.queueOf("k"), -1)
			if err != nil {
				t.Fatal(err)
			}
		}
		if deleted != "" {
			if err := store.conn.Delete(deleted, -1); err != nil {
				t.Fatal(err)
			}
		}
		l := locktest.Taken(t, store, "k")
		if at := sequence(queueIn(t, store, "k")[0]); l.Fence <= last.Fence || at != 0 {
			t.Errorf("fence %d after %d, with the sequence number %d", l.Fence, last.Fence, at)
		}
		locktest.Released(t, store, l)
		last = l
	}
}

// The fence is the id of the transaction that has created the node, as ZooKeeper reports it.
func TestFence_IsTheTransactionOfTheCreation(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, time.Minute)
	for range 3 {
		l := locktest.Taken(t, store, "k")
		_, stat, err := store.conn.Exists(store.queueOf("k") + "/" + queueIn(t, store, "k")[0])
		if err != nil {
			t.Fatal(err)
		}
		if int64(l.Fence) != stat.Czxid {
			t.Errorf("the fence is %d, the transaction %d", l.Fence, stat.Czxid)
		}
		locktest.Released(t, store, l)
	}
}

// An operator deletes the node of a lease: it is lost, and the next waiter gets the key.
func TestRenew_DeletedNodeIsLost(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b := g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	next := acquireInBackground(t.Context(), b, "k")
	awaitQueue(t, a, "k", 2)
	if err := b.conn.Delete(b.queueOf("k")+"/"+queueIn(t, b, "k")[0], -1); err != nil {
		t.Fatal(err)
	}
	if got := <-next; got.error != nil || got.Fence <= held.Fence {
		t.Errorf("the waiter: %+v after %+v", got, held)
	}
	if _, err := a.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
}

// A waiter whose own node is deleted gets another one.
func TestAcquire_WaiterWithoutANodeWaitsAgain(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b := g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	next := acquireInBackground(t.Context(), b, "k")
	awaitQueue(t, a, "k", 2)
	first := queueIn(t, a, "k")[1]
	if err := a.conn.Delete(a.queueOf("k")+"/"+first, -1); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, a, held)
	if got := <-next; got.error != nil || queueIn(t, a, "k")[0] == first {
		t.Errorf("the waiter: %+v, its first node was %s", got, first)
	}
}

// All that counts is the number at the end of a name: names begin with random owners.
func TestSequence_IsTheNumberAtTheEndOfTheName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"K3ZA-0000000007": 7, "_c_6b1f-lock-2147483646": 2147483646, "K3ZA-2147483647": math.MaxInt32, "config": -1, "K3ZA-": -1,
	} {
		if got := sequence("/locks/key:a-1/" + name); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}

// With a Login only the same user can use the queues.
func TestOptions_LoginKeepsOthersOut(t *testing.T) {
	t.Parallel()
	g := shared(t)
	stranger := g.must(t, time.Minute)
	store, err := g.with(t, time.Minute, Options{Login: "shop:secret"})
	if err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
	if _, err := stranger.TryAcquire(t.Context(), "k"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("without the login: got %v, want ErrNoAuth", err)
	}
}

func TestNew_WithoutAServerEndsWithCtx(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := New(ctx, []string{servertest.FreeAddr(t)}, time.Minute, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

// Close ends the session, and with it every lease and every wait.
func TestClose_FreesTheKeysAtOnce(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b := g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	kept := locktest.Taken(t, b, "kept")
	next, never := acquireInBackground(t.Context(), b, "k"), acquireInBackground(t.Context(), a, "kept")
	awaitQueue(t, b, "k", 2)
	awaitQueue(t, b, "kept", 2)
	a.Close()
	a.Close()
	if got := <-next; got.error != nil {
		t.Error(got.error)
	}
	if got := <-never; !errors.Is(got.error, locking.ErrClosed) {
		t.Errorf("the waiter of the closed Store: got %v, want ErrClosed", got.error)
	}
	if queue := queueIn(t, b, "kept"); len(queue) != 1 {
		t.Errorf("the queue is %q", queue)
	}
	_, err := a.TryAcquire(t.Context(), "another")
	_, renewed := a.Renew(t.Context(), held)
	for what, err := range map[string]error{"acquire": err, "renew": renewed, "release": a.Release(t.Context(), held)} {
		if !errors.Is(err, locking.ErrClosed) {
			t.Errorf("%s after Close: got %v, want ErrClosed", what, err)
		}
	}
	locktest.Released(t, b, kept)
}
