package zklock

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/compose/local/stack"
	"shop/compose/local/stack/stacktest"
	"shop/locking"
	"shop/locking/locktest"
)

// leaderOf returns the member that reports itself as the leader.
func leaderOf(t *testing.T, members []*stack.Server) (leader *stack.Server) {
	t.Helper()
	locktest.Eventually(t, "there is a leader", func() bool {
		for _, m := range members {
			if m.State == stack.Running && strings.Contains(stateOf(m.Addr), "Mode: leader") {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// stateOf returns what a member reports about itself; empty: it does not answer.
func stateOf(addr string) string {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "srvr")
	state, _ := io.ReadAll(conn)
	return string(state)
}

// busyThroughout requests a key again and again until stop is called, and fails the test if it is granted.
func busyThroughout(t *testing.T, s *Store, key string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan int)
	go func() {
		refused := 0
		for pace := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-pace.C {
			l, err := s.TryAcquire(ctx, key)
			switch {
			case err == nil:
				t.Errorf("a second holder: %+v", l)
			case errors.Is(err, locking.ErrBusy):
				refused++
			}
		}
		done <- refused
	}()
	return func() {
		cancel()
		if refused := <-done; refused == 0 {
			t.Error("no request was answered")
		}
	}
}

// The leader of three members is killed, and then the member that serves the holder is paused. The holder
// keeps its lease and its session, no other Store gets the key, and fences grow under the new leader.
func TestCluster_LockSurvivesTheLeaderAndAPause(t *testing.T) {
	t.Parallel()
	members := stacktest.Private(t, "zookeeper3")
	var servers []string
	for _, m := range members {
		servers = append(servers, m.Addr)
	}
	g := at(servers...)
	const ttl = 20 * time.Second
	holder, waiter, other := g.must(t, ttl), g.must(t, ttl), g.must(t, ttl)
	session, stop := sessionOf(holder), make(chan struct{})
	first, ended := hold(t, holder, "k", stop)
	next := acquireInBackground(t.Context(), waiter, "k")
	awaitQueue(t, other, "k", 2)
	before := take(t, other, "free")
	release(t, other, before)
	second := busyThroughout(t, other, "k")

	old := leaderOf(t, members)
	if err := old.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if leaderOf(t, members) == old {
		t.Fatal("the killed member is still the leader")
	}
	var after locking.Lease
	locktest.Eventually(t, "a lock is granted under the new leader", func() bool {
		var err error
		after, err = other.TryAcquire(t.Context(), "free")
		return err == nil
	})
	release(t, other, after)
	if after.Fence <= before.Fence {
		t.Errorf("fence %d under the new leader, %d under the old one", after.Fence, before.Fence)
	}
	if err := old.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	serving := members[slices.Index(servers, holder.conn.Server())]
	if err := serving.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "the holder is served by another member", func() bool {
		_, _, err := holder.conn.Exists("/")
		return err == nil && holder.conn.Server() != serving.Addr
	})
	if err := serving.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}

	second()
	select {
	case got := <-next:
		t.Fatalf("the waiter was granted the held key: %+v", got)
	default:
	}
	if sessionOf(holder) != session {
		t.Error("the holder's session has expired")
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Errorf("the holder: %v", err)
	}
	if got := <-next; got.error != nil || got.Fence <= first.Fence {
		t.Errorf("the waiter: %+v after %+v", got, first)
	}
}
