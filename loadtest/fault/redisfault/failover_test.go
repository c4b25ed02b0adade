// SPDX-License-Identifier: MIT

package redisfault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"shop/compose/local/stack"
	"shop/compose/local/stack/stacktest"
	"shop/loadtest/fault"
	"shop/locking"
	"shop/locking/redislock"
)

// sentinels starts a master, two replicas and three Sentinels for one test.
func sentinels(t *testing.T) (f Failover, url string) {
	t.Helper()
	for n, s := range stacktest.Private(t, "redis-sentinel") {
		m := fault.Member{Addr: s.Addr, Server: s}
		if url = s.Env["SHOP_REDIS_URL"]; n < 3 {
			f.Members = append(f.Members, m)
		} else {
			f.Sentinels = append(f.Sentinels, m)
		}
	}
	f.Name, f.Prefix, f.TTL = stack.SentinelMaster, "failover", 8*time.Second
	return f, url
}

// shop stands for two replicas of a service, each of which holds a lock again and again. A paused one
// sends nothing, and goes on as if nothing had happened.
type shop struct {
	mu     sync.Mutex
	paused [2]chan struct{} // closed when the replica may go on; nil: it runs
	inside map[string]locking.Lease
	twice  int // grants to one while the lease of the other was still valid
}

func (s *shop) Pause(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused[n] = make(chan struct{})
	return nil
}

func (s *shop) Resume(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused[n] != nil {
		close(s.paused[n])
		s.paused[n] = nil
	}
	return nil
}

// wait returns when replica n is not paused.
func (s *shop) wait(ctx context.Context, n int) {
	s.mu.Lock()
	paused := s.paused[n]
	s.mu.Unlock()
	if paused != nil {
		select {
		case <-paused:
		case <-ctx.Done():
		}
	}
}

// grant notes that a key is held. The holder in a paused replica still trusts its lease.
func (s *shop) grant(key string, l locking.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, held := s.inside[key]; held && time.Now().Before(other.Until) {
		s.twice++
	}
	s.inside[key] = l
}

func (s *shop) end(key string, l locking.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside[key].Owner == l.Owner {
		delete(s.inside, key)
	}
}

// sell takes the lock of one of the two products on sale, for a moment each time. Each is on sale for eight seconds.
func (s *shop) sell(ctx context.Context, n int, locks locking.Store) {
	began := time.Now()
	for turn := 0; ctx.Err() == nil; turn++ {
		s.wait(ctx, n)
		key := fmt.Sprintf("product-%d", int(time.Since(began)/(4*time.Second))+turn%2)
		l, err := locks.TryAcquire(ctx, key)
		if err != nil {
			fault.Wait(ctx, 5*time.Millisecond)
			continue
		}
		s.grant(key, l)
		fault.Wait(ctx, 30*time.Millisecond)
		s.wait(ctx, n)
		s.end(key, l)
		_ = locks.Release(ctx, l)
		fault.Wait(ctx, 10*time.Millisecond) // the other replica gets its turn
	}
}

func (s *shop) open(t *testing.T, url string, ttl time.Duration) (stop func()) {
	s.inside = map[string]locking.Lease{}
	ctx, cancel := context.WithCancel(t.Context())
	var replicas sync.WaitGroup
	for n := range 2 {
		client, err := redislock.Connect(url, ttl)
		if err != nil {
			t.Fatal(err)
		}
		store, err := redislock.New(client, ttl, redislock.Options{Prefix: "failover"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close(); _ = client.Close() })
		replicas.Go(func() { s.sell(ctx, n, store) })
	}
	return func() { cancel(); replicas.Wait() }
}

// tried runs f up to three times, until it reports nothing: on a machine that is too busy, Sentinels and
// replicas take their time.
func tried(t *testing.T, f func() (wrong string)) {
	t.Helper()
	wrong := ""
	for range 3 {
		if wrong = f(); wrong == "" {
			return
		}
		t.Log(wrong)
	}
	t.Error(wrong)
}

// The master is killed, and then its successor is paused: a key has two holders.
func TestFailover_TwoHolders(t *testing.T) {
	tried(t, func() string {
		f, url := sentinels(t)
		s := &shop{}
		stop := s.open(t, url, f.TTL)
		f.Replicas, f.Times = s, 2
		events, err := f.Inject(t.Context(), 25*time.Second)
		stop()
		for _, e := range events {
			t.Logf("%s: %v, for %.1f s", e.What, e.Seen, e.Until.Sub(e.At).Seconds())
		}
		if seen := fault.Seen(events); err != nil || seen["redis_failovers"] != 2 || seen["two_holders"] < 1 || s.twice < 1 {
			return fmt.Sprintf("%v and %d grants of held keys, error %v; want 2 failovers, and two holders", seen, s.twice, err)
		}
		return ""
	})
}

// A fault that ends early leaves a master with two replicas.
func TestFailover_CancelledItIsUndone(t *testing.T) {
	tried(t, func() string {
		f, url := sentinels(t)
		s := &shop{}
		defer s.open(t, url, f.TTL)()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.Replicas, f.Times = s, 1
		f.Members[0].Server = cancelling{f.Members[0].Server, cancel}
		events, err := f.Inject(ctx, 10*time.Second)
		if len(events) != 1 || err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Sprintf("events %+v, error %v", events, err)
		}
		set := newSet(f)
		defer set.close()
		n, err := set.master(t.Context(), "")
		if err != nil {
			return err.Error()
		}
		if info := set.members[n].Info(t.Context(), "replication").Val(); strings.Count(info, ",state=online,") != 2 {
			return "the master has not two replicas: " + info
		}
		for n, m := range set.members {
			if rules := m.Do(t.Context(), "ACL", "LIST").String(); strings.Contains(rules, "-psync") {
				return fmt.Sprintf("member %d refuses replicas: %s", n+1, rules)
			}
		}
		for n, paused := range s.paused {
			if paused != nil {
				return fmt.Sprintf("replica %d is still paused", n+1)
			}
		}
		return ""
	})
}

// cancelling is a server whose kill ends the fault.
type cancelling struct {
	fault.Node
	cancel context.CancelFunc
}

func (c cancelling) Kill(ctx context.Context) error {
	defer c.cancel()
	return c.Node.Kill(ctx)
}

// Without a lock that is held there is a failover, but no evidence of two holders.
func TestFailover_WithoutAHolderThereIsNoEvidence(t *testing.T) {
	tried(t, func() string {
		f, _ := sentinels(t)
		f.Replicas, f.Times = &shop{}, 1
		events, err := f.Inject(t.Context(), 10*time.Second)
		if seen := fault.Seen(events); err != nil || seen["two_holders"] != 0 || seen["redis_failovers"] != 1 {
			return fmt.Sprintf("%v, error %v; want a failover and no two holders", seen, err)
		}
		return ""
	})
}
