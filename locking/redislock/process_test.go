// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	servertest.Roles(map[string]func(args []string) error{
		"count": func(args []string) error { return count(args[0]) },
	})
	goleak.VerifyTestMain(m)
}

const workers, increments = 3, 100

// count increments a number in Redis by a read and a write, which is correct only under
// a lock.
func count(prefix string) error {
	client, err := Connect(os.Getenv("SHOP_REDIS_URL"), 30*time.Second)
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := New(client, 30*time.Second, Options{Prefix: prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	options, err := redis.ParseURL(os.Getenv("SHOP_REDIS_URL"))
	if err != nil {
		return err
	}
	number := redis.NewClient(options) // with longer time limits than those of a lock: the machine may be busy
	defer number.Close()
	often := locking.Options{Backoff: locking.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}}
	for range increments {
		err := locking.Do(context.Background(), store, often, []string{"number"}, func(ctx context.Context, _ locking.Lease) error {
			n, err := number.Get(ctx, prefix+"number").Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			return number.Set(ctx, prefix+"number", n+1, 0).Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDo_ExcludesProcesses(t *testing.T) {
	locktest.Slow(t, "processes")
	prefix := redistest.Prefix(t, redistest.URL(t))
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if out, err := servertest.Process(t, "count", prefix).CombinedOutput(); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, out)
			}
		})
	}
	all.Wait()
	client := connect(t, redistest.URL(t), time.Second)
	if got := client.Get(t.Context(), prefix+"number").Val(); got != strconv.Itoa(workers*increments) {
		t.Errorf("after %d increments by each of %d processes the number is %q", increments, workers, got)
	}
}
