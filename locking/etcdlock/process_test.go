// SPDX-License-Identifier: MIT

package etcdlock

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) {
	servertest.Roles(map[string]func(args []string) error{
		"count": func(args []string) error { return count(args[0]) },
		"hold":  func(args []string) error { return hold(args[0]) },
	})
	_ = flag.Set("test.parallel", "6") // the tests wait most of the time; -parallel overrides it
	go watchStalls()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// process calls f with a client, and a Store in the key space with this prefix.
func process(prefix string, ttl time.Duration, f func(*clientv3.Client, *Store) error) error {
	client, err := clientv3.New(quiet(strings.Split(os.Getenv("SHOP_ETCD_ENDPOINTS"), ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := New(context.Background(), client, ttl, Options{Prefix: prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	return f(client, store)
}

const workers, increments = 3, 50

// count increments a number. Its TTL is long enough for a stall of the machine.
func count(prefix string) error {
	return process(prefix, 20*time.Second, func(client *clientv3.Client, store *Store) error {
		for range increments {
			err := locking.Do(context.Background(), store, locking.Options{}, []string{"number"}, func(ctx context.Context, _ locking.Lease) error {
				return increment(ctx, client, prefix+"/number")
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// increment reads and then writes, which is correct only under a lock.
func increment(ctx context.Context, client *clientv3.Client, name string) error {
	answer, err := client.Get(ctx, name)
	if err != nil {
		return err
	}
	n := 0
	if len(answer.Kvs) > 0 {
		n, _ = strconv.Atoi(string(answer.Kvs[0].Value))
	}
	_, err = client.Put(ctx, name, strconv.Itoa(n+1))
	return err
}

// hold acquires k, prints its fence, holds it until it is lost, and then prints that.
func hold(prefix string) error {
	return process(prefix, 3*time.Second, func(_ *clientv3.Client, store *Store) error {
		err := locking.Do(context.Background(), store, locking.Options{}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
			fmt.Println("held", l.Fence)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, locking.ErrLost) {
			return fmt.Errorf("got %w, want ErrLost", err)
		}
		fmt.Println("lost")
		return nil
	})
}

func TestDo_ExcludesProcesses(t *testing.T) {
	locktest.Slow(t, "processes")
	t.Parallel()
	g := shared(t)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if out, err := servertest.Process(t, "count", g.prefix).CombinedOutput(); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, out)
			}
		})
	}
	all.Wait()
	answer, err := g.client(t).Get(t.Context(), g.prefix+"/number")
	if err != nil || len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != strconv.Itoa(workers*increments) {
		t.Errorf("after %d increments by each of %d processes the number is %+v, %v", increments, workers, answer, err)
	}
}

// T16 with a real pause: a process is stopped for longer than the TTL, while the answer
// to a keep-alive may be under way. When it continues, it detects the loss at once, and
// the key has been granted to another holder, with a greater fence.
func TestDo_StoppedProcessDetectsTheLossWhenItContinues(t *testing.T) {
	locktest.Slow(t, "processes")
	t.Parallel()
	g := shared(t)
	cmd := servertest.Process(t, "hold", g.prefix)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	var fence locking.Fence
	if _, err := fmt.Fscanln(out, new(string), &fence); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	store := g.must(t, 20*time.Second)
	next, err := store.Acquire(t.Context(), "k")
	if err != nil || next.Fence <= fence {
		t.Errorf("got %+v, %v, after fence %d", next, err, fence)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	woken := time.Now()
	if said, err := out.ReadString('\n'); err != nil || said != "lost\n" || ranSince(woken) > time.Second {
		t.Errorf("the process printed %q, %v, after %v", said, err, ranSince(woken))
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	locktest.Released(t, store, next)
}
