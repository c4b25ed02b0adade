// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"shop/locking"
)

// table is a lock service for one process, used by the examples. The sub-packages hold
// the real ones.
type table struct {
	mu    sync.Mutex
	holds map[string]bool
	fence locking.Fence
}

func (t *table) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds[keys[0]] {
		return locking.Lease{}, locking.ErrBusy
	}
	t.holds[keys[0]] = true
	t.fence++
	return locking.Lease{Keys: keys, Owner: fmt.Sprint("owner-", t.fence), Fence: t.fence, Until: time.Now().Add(time.Minute)}, nil
}

func (t *table) Renew(_ context.Context, l locking.Lease) (locking.Lease, error) {
	l.Until = time.Now().Add(time.Minute)
	return l, nil
}

func (t *table) Release(_ context.Context, l locking.Lease) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, l.Keys[0])
	return nil
}

func newTable() *table { return &table{holds: map[string]bool{}} }

func ExampleDo() {
	store := newTable() // or redislock.New(client, 5*time.Second, redislock.Options{})
	stock := 1

	err := locking.Do(context.Background(), store, locking.Options{}, []string{"stock/apple"},
		func(ctx context.Context, lease locking.Lease) error {
			fmt.Println("fence", lease.Fence)
			stock--
			return nil
		})
	fmt.Println("stock", stock, err)
	// Output:
	// fence 1
	// stock 0 <nil>
}

// TryAcquire does not wait: one server runs the job, the others skip it at once.
func ExampleStore_skip() {
	store := newTable()
	ctx := context.Background()
	for _, server := range []string{"a", "b"} {
		_, err := store.TryAcquire(ctx, "job/daily-sales")
		switch {
		case errors.Is(err, locking.ErrBusy):
			fmt.Println(server, "skips it")
		case err == nil:
			fmt.Println(server, "runs it")
		}
	}
	// Output:
	// a runs it
	// b skips it
}

// The ctx bounds the wait. The error matches ctx.Err(), and ErrBusy for a busy key.
func ExampleAcquire() {
	store := newTable()
	_, _ = store.TryAcquire(context.Background(), "stock/apple")

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := locking.Acquire(ctx, store, locking.Options{}, "stock/apple")
	fmt.Println(errors.Is(err, locking.ErrBusy), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

// The end of fn's ctx does not interrupt a write that has begun: Commit runs it on a
// ctx of its own.
func ExampleCommit() {
	client, leave := context.WithCancel(context.Background())
	err := locking.Do(client, newTable(), locking.Options{}, []string{"account/7"},
		func(ctx context.Context, _ locking.Lease) error {
			return locking.Commit(ctx, time.Second, func(ctx context.Context) error {
				leave() // the client hangs up during the write
				return ctx.Err()
			})
		})
	fmt.Println("committed:", err == nil)
	// Output: committed: true
}

// After a write without an answer the lease is not released but expires, so that the
// key has no new holder while the write may still be under way.
func ExampleErrOutcomeUnknown() {
	printEnd := func(e locking.Event) {
		if e.Kind == locking.Released || e.Kind == locking.Left {
			fmt.Println(e.Kind)
		}
	}
	for _, c := range []struct{ limit, latency time.Duration }{{time.Minute, time.Millisecond}, {time.Millisecond, time.Minute}} {
		_ = locking.Do(context.Background(), newTable(), locking.Options{Observer: printEnd}, []string{"account/7"},
			func(ctx context.Context, _ locking.Lease) error {
				return locking.Commit(ctx, c.limit, func(ctx context.Context) error {
					return answer(ctx, c.latency)
				})
			})
	}
	// Output:
	// released
	// left
}

// answer is the reply of a server with that latency.
func answer(ctx context.Context, latency time.Duration) error { return work(ctx, latency) }

func ExampleBackoff() {
	b := locking.Backoff{Base: 100 * time.Millisecond, Max: time.Second, Rand: func() float64 { return 0.5 }}
	for n := range 5 {
		fmt.Println(b.Wait(n))
	}
	// Output:
	// 75ms
	// 150ms
	// 300ms
	// 600ms
	// 750ms
}

func ExampleSortedKeys() {
	fmt.Println(locking.SortedKeys([]string{"account/9", "account/10", "account/9"}))
	fmt.Println(locking.SortedKeys([]string{"account/9", ""}))
	// Output:
	// [account/10 account/9] <nil>
	// [] locking: a key must be valid UTF-8 without NUL, 1 to 512 bytes: empty
}

func ExampleLog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "wait" || a.Key == "held" {
				return slog.Attr{} // differs between runs
			}
			return a
		},
	}))
	o := locking.Options{Observer: locking.Log(logger)}
	_ = locking.Do(context.Background(), newTable(), o, []string{"stock/apple"}, nothing)
	// Output:
	// level=DEBUG msg=lock event=attempt key=stock/apple
	// level=DEBUG msg=lock event=acquired key=stock/apple owner=owner-1 fence=1
	// level=DEBUG msg=lock event=released key=stock/apple owner=owner-1 fence=1
}
