// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"

	"shop/locking/redislock"
	"shop/locking/servertest"
)

func TestLocks_ListsAndEndsALockWithoutATTL(t *testing.T) {
	t.Parallel()
	redisURL := servertest.Env(t, "SHOP_REDIS_URL")
	locks := []string{"locks", "--postgres-url=", "--etcd-endpoints=", "--redis-url", redisURL, "--lock-prefix", t.Name()}
	if out, err := shop(t, locks...); err != nil || strings.Count(out, "\n") != 1 {
		t.Errorf("%v\n%s, want a heading alone", err, out)
	}
	client, err := redislock.Connect(redisURL, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	name := redislock.Options{Prefix: t.Name()}.Scope("product/APPLE") + "lock:product/APPLE"
	if err := client.Set(t.Context(), name, "host-1", 0).Err(); err != nil { // as SETNX leaves it
		t.Fatal(err)
	}
	if out, err := shop(t, locks...); err == nil || !strings.Contains(err.Error(), "locks without a TTL: 1") || !strings.Contains(out, "product/APPLE") || !strings.Contains(out, "no TTL") {
		t.Errorf("%v\n%s, want the alert", err, out)
	}
	end := append(locks, "--end", "redis product/APPLE")
	if out, err := shop(t, end...); err != nil || out != "product/APPLE in redis is free\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := shop(t, end...); err == nil || !strings.Contains(err.Error(), "is free in redis already") {
		t.Errorf("again: %v", err)
	}
	if _, err := shop(t, append(locks, "--end", "etcd a")...); err == nil || !strings.Contains(err.Error(), "is not set") {
		t.Errorf("a store that is not set: %v", err)
	}
}
