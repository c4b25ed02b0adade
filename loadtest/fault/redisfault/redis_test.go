// SPDX-License-Identifier: MIT

package redisfault

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"

	"github.com/redis/go-redis/v9"
)

func connect(t *testing.T) (*redis.Client, string) {
	t.Helper()
	options, err := redis.ParseURL(testbed.Env(t, "SHOP_REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	prefix := fmt.Sprintf("fault[%d]*%d", os.Getpid(), time.Now().UnixNano()) // with characters that are special in patterns
	t.Cleanup(func() {
		ctx := context.Background()
		for _, name := range []string{prefix + "{1}lock:a", prefix + "{1}fence", "x" + prefix + "{1}lock:a"} {
			client.Del(ctx, name)
		}
		_ = client.Close()
	})
	return client, prefix
}

func TestLockLost_DeletesAndCountsTheLocksOfItsPrefix(t *testing.T) {
	client, prefix := connect(t)
	lock, fence, other := prefix+"{1}lock:a", prefix+"{1}fence", "x"+prefix+"{1}lock:a"
	for _, name := range []string{lock, fence, other} {
		if err := client.Set(t.Context(), name, "1:me", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	events, err := LockLost{Client: client, Prefix: prefix, Every: time.Millisecond}.Inject(t.Context(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Hits != 1 || fault.Seen(events)["locks_deleted"] != 1 || !events[0].Until.After(events[0].At) || !events[0].Steady {
		t.Errorf("events %+v, want one with one hit", events)
	}
	for name, want := range map[string]int64{lock: 0, fence: 1, other: 1} {
		if n, err := client.Exists(t.Context(), name).Result(); err != nil || n != want {
			t.Errorf("%s: %d left (%v), want %d", name, n, err, want)
		}
	}
}

func TestLockLost_WithoutALockThereIsNoHit(t *testing.T) {
	client, prefix := connect(t)
	events, err := LockLost{Client: client, Prefix: prefix, Every: time.Millisecond}.Inject(t.Context(), 5*time.Millisecond)
	if err != nil || events[0].Hits != 0 {
		t.Errorf("events %+v, error %v; want no hits", events, err)
	}
}
