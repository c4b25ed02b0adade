// SPDX-License-Identifier: MIT

package zkwatch

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"shop/locking/servertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servertest.WithServer(m, func(t testing.TB) {
		if os.Getenv("SHOP_ZOOKEEPER_SERVERS") == "" {
			_ = os.Setenv("SHOP_ZOOKEEPER_SERVERS", servertest.StartZooKeeper(t, 1)[0].Addr)
		}
	}))
}

// newLock makes a lock with a queue of its own.
func newLock(t *testing.T) Lock {
	t.Helper()
	conn, _, err := zk.Connect(strings.Split(servertest.Env(t, "SHOP_ZOOKEEPER_SERVERS"), ","), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	path, err := conn.Create("/wrong-"+rand.Text(), nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	return Lock{Conn: conn, Path: path}
}

func TestAcquire_SortedByNameLetsTwoIn(t *testing.T) {
	t.Parallel()
	lock := newLock(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	first, err := lock.Acquire(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	second, err := lock.Acquire(ctx, "a")
	if err != nil {
		t.Fatalf("%v: want two holders, %s and a later one", err, first)
	}
	if nodes, _, err := lock.Conn.Children(lock.Path); err != nil || len(nodes) != 2 {
		t.Errorf("the queue is %v, %v, want both %s and %s", nodes, err, first, second)
	}
}

// The holder releases after the waiter has listed the nodes, and before it sets its watch; or after that, which is the control.
func TestAcquire_WatchesANodeThatIsGone(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		lock := newLock(t)
		first, err := lock.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		waiter, release := lock, func() {
			if err := lock.Release(first); err != nil {
				t.Error(err)
			}
		}
		if late {
			waiter.Watched = release
		} else {
			waiter.Listed = release
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		node, err := waiter.Acquire(ctx, "b")
		if granted := err == nil; granted != late || !granted && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("released after the watch: %v: %q, %v", late, node, err)
		}
		if nodes, _, err := lock.Conn.Children(lock.Path); err != nil || len(nodes) != 1 {
			t.Errorf("the queue is %v, %v: want the waiter alone, which is the first", nodes, err)
		}
	}
}
