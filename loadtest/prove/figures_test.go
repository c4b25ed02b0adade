// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/redislock"
)

// A lock that a store holds at rest is counted where the proof looks for it.
func TestFigures_ALockThatIsLeftIsCounted(t *testing.T) {
	e := &environment{
		settings: &app{RedisURL: testbed.Env(t, "SHOP_REDIS_URL"), Etcd: testbed.Env(t, "SHOP_ETCD_ENDPOINTS")},
		etcds:    map[string]*clientv3.Client{},
	}
	t.Cleanup(e.close)
	prefix := fmt.Sprintf("figures-%d", time.Now().UnixNano())
	for _, l := range e.lessons()[:2] {
		trial := &loadtest.Trial{Scenario: l.Safe("row", loadtest.NoFault), Prefix: prefix}
		read := func() map[string]int64 {
			figures, err := e.figures(t.Context(), trial, nil)
			if err != nil {
				t.Fatal(err)
			}
			named := map[string]int64{}
			for _, f := range figures {
				_, name, _ := strings.Cut(f.Name, ": ")
				named[name] = f.After
			}
			return named
		}
		if got := read(); got["locks"] != 0 {
			t.Errorf("%s, at the beginning: %v", l.Name, got)
		}
		store := lockStore(t, e, trial)
		lease, err := store.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got := read(); got["locks"] < 1 || l.Name == "transfer" && got["leases"] < 1 || l.Name == "inventory" && got["connections"] < 1 {
			t.Errorf("%s, with a lock: %v", l.Name, got)
		}
		if err := store.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if got := read(); got["locks"] != 0 {
			t.Errorf("%s, after its release: %v", l.Name, got)
		}
	}
}

// lockStore returns a store of the locks of a trial's flow.
func lockStore(t *testing.T, e *environment, trial *loadtest.Trial) locking.Store {
	t.Helper()
	const ttl = 10 * time.Second
	if trial.Scenario.Flow.Name == "inventory" {
		client, err := redislock.Connect(e.settings.RedisURL, ttl)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		store, err := redislock.New(client, ttl, redislock.Options{Prefix: trial.Prefix})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	client, err := e.Etcd(trial.Scenario)
	if err != nil {
		t.Fatal(err)
	}
	store, err := etcdlock.New(t.Context(), client, ttl, etcdlock.Options{Prefix: trial.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}
