package etcdlock

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"shop/locking"
)

// worker is the environment variable that makes this test binary a worker process. Its
// value is the task of the worker and the prefix of its key space.
const worker = "ETCDLOCK_TEST_WORKER"

func TestMain(m *testing.M) {
	if task, prefix, is := strings.Cut(os.Getenv(worker), " "); is {
		if err := runTask(task, prefix); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = flag.Set("test.parallel", "6") // the tests wait most of the time; -parallel overrides it
	go watchStalls()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func runTask(task, prefix string) error {
	client, err := clientv3.New(quiet(strings.Split(os.Getenv("SHOP_ETCD_ENDPOINTS"), ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	ttl := 20 * time.Second // long enough for a stall of the machine
	if task == "hold" {
		ttl = 3 * time.Second
	}
	store, err := New(context.Background(), client, ttl, Options{Prefix: prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	if task == "hold" {
		return hold(store)
	}
	for range increments {
		err := locking.Do(context.Background(), store, locking.Options{}, []string{"number"}, func(ctx context.Context, _ locking.Lease) error {
			return increment(ctx, client, prefix+"/number")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const workers, increments = 3, 50

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
func hold(store *Store) error {
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
}

func start(t *testing.T, task, prefix string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), worker+"="+task+" "+prefix)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

func TestDo_ExcludesProcesses(t *testing.T) {
	t.Parallel()
	g := shared(t)
	var all sync.WaitGroup
	for i := range workers {
		cmd, out := start(t, "count", g.prefix)
		all.Go(func() {
			said, _ := io.ReadAll(out)
			if err := cmd.Wait(); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, said)
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
	t.Parallel()
	g := shared(t)
	cmd, out := start(t, "hold", g.prefix)
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
	release(t, store, next)
}
