package redislock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shop/locking"
)

// worker is the environment variable that makes this test binary a worker process of
// TestDo_ExcludesProcesses. Its value is the prefix of their key space.
const worker = "REDISLOCK_TEST_WORKER"

func TestMain(m *testing.M) {
	if prefix := os.Getenv(worker); prefix != "" {
		if err := work(prefix); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const workers, increments = 3, 100

// work increments a number in Redis by a read and a write, which is correct only under
// a lock.
func work(prefix string) error {
	client, err := Connect(os.Getenv("SHOP_REDIS_URL"), 10*time.Second)
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := New(client, 10*time.Second, Options{Prefix: prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	often := locking.Options{Backoff: locking.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}}
	for range increments {
		err := locking.Do(context.Background(), store, often, []string{"number"}, func(ctx context.Context, _ locking.Lease) error {
			n, _ := client.Get(ctx, prefix+"number").Int()
			return client.Set(ctx, prefix+"number", n+1, 0).Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDo_ExcludesProcesses(t *testing.T) {
	prefix := newPrefix(t, redisURL(t))
	var all sync.WaitGroup
	for i := range workers {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), worker+"="+prefix)
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, out)
			}
		})
	}
	all.Wait()
	client := connect(t, redisURL(t), time.Second)
	if got := client.Get(t.Context(), prefix+"number").Val(); got != strconv.Itoa(workers*increments) {
		t.Errorf("after %d increments by each of %d processes the number is %q", increments, workers, got)
	}
}
