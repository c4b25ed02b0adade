// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// leaderOf returns the member that reports itself as the leader.
func leaderOf(t *testing.T, members []*servertest.Server) (leader *servertest.Server) {
	t.Helper()
	locktest.Eventually(t, "there is a leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, m := range members {
			state, err := daemon.ZooKeeperAsk(ctx, m.Addr, "srvr")
			if err == nil && strings.Contains(state, "Mode: leader") {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// busyThroughout requests a key again and again until stop is called, and fails the test if it is granted.
func busyThroughout(t *testing.T, s *opened, key string) (stop func()) {
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
	locktest.Slow(t, "three ZooKeepers")
	t.Parallel()
	members := servertest.StartZooKeeper(t, 3)
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
	before := locktest.Taken(t, other, "free")
	locktest.Released(t, other, before)
	second := busyThroughout(t, other, "k")

	old := leaderOf(t, members)
	old.Kill()
	if leaderOf(t, members) == old {
		t.Fatal("the killed member is still the leader")
	}
	var after locking.Lease
	locktest.Eventually(t, "a lock is granted under the new leader", func() bool {
		var err error
		after, err = other.TryAcquire(t.Context(), "free")
		return err == nil
	})
	locktest.Released(t, other, after)
	if after.Fence <= before.Fence {
		t.Errorf("fence %d under the new leader, %d under the old one", after.Fence, before.Fence)
	}
	old.Start()
	for leader := leaderOf(t, members); holder.conn.Server() == leader.Addr; { // an election may take longer than the trust
		before := holder.conn.Server()
		holder.client.mu.Lock()
		l := holder.link
		holder.client.mu.Unlock()
		_ = l.Close()
		locktest.Eventually(t, "the holder has connected again", func() bool {
			_, _, err := holder.conn.Exists("/")
			return err == nil && holder.conn.Server() != before
		})
	}

	serving := members[slices.Index(servers, holder.conn.Server())]
	serving.Pause()
	locktest.Eventually(t, "the holder is served by another member", func() bool {
		_, _, err := holder.conn.Exists("/")
		return err == nil && holder.conn.Server() != serving.Addr
	})
	serving.Resume()

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
