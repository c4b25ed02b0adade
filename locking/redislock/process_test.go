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

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	locktest.Roles(map[string]func(args []string) error{
		"count": func(args []string) error { return count(args[0]) },
		"wait":  func(args []string) error { return wait(args[0]) },
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
	locktest.Slow(t, "processes")
	prefix := newPrefix(t, redisURL(t))
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if out, err := locktest.Process(t, "count", prefix).CombinedOutput(); err != nil {
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

// wait waits for the key k of a fair lock until the process is killed.
func wait(prefix string) error {
	client, err := Connect(os.Getenv("SHOP_REDIS_URL"), time.Minute)
	if err != nil {
		return err
	}
	fair, err := NewFair(client, time.Minute, Options{Prefix: prefix})
	if err != nil {
		return err
	}
	_, err = fair.Acquire(context.Background(), "k")
	return fmt.Errorf("granted: %w", err)
}

// The first waiters are killed: the one behind them is granted the key when their tickets
// have ended, all at the same time.
func TestFair_KilledWaitersDelayTheNextOnce(t *testing.T) {
	locktest.Slow(t, "processes")
	t.Parallel()
	s := newSteps(t, 30*time.Second, nil)
	rw := s.rw(time.Minute)
	rw.Write.inbox.poll, rw.Write.ticketTTL = poll, 12*poll
	held := s.take(rw.Write, "k")
	var processes []*exec.Cmd
	for i := range 3 {
		cmd := locktest.Process(t, "wait", s.prefix)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
		s.eventually("the process waits", func() bool { return len(s.tickets(rw.Write, "k")) == i+1 })
	}
	next := s.wait(rw.Write, "k")
	for _, cmd := range processes {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	died := time.Now()
	s.release(rw.Write, held)
	s.busy(rw.Write, "k")
	s.release(rw.Write, s.granted("the living waiter", next))
	if took := time.Since(died); s.err != nil || took > 2*12*poll {
		t.Errorf("%v after %v", s.err, took)
	}
}
