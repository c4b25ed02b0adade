// SPDX-License-Identifier: MIT

package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/redislock"
)

// openUse returns a lock store, and a client for other keys. end closes both.
func openUse() (store *driver.Store, client *redis.Client, end func()) {
	store, closeStore := open(redislock.New)
	settings, err := redis.ParseURL(os.Getenv("SHOP_REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	client = redis.NewClient(settings)
	return store, client, func() { _ = client.Close(); closeStore() }
}

// A cache entry has expired, and twenty requests want it at once. One computes it, and the others wait for
// that one. The database is asked once.
func Example_cacheFilledOnce() {
	ctx := context.Background()
	store, cache, end := openUse()
	defer end()
	defer cache.Del(ctx, "price/coffee")
	var asked atomic.Int64
	var arrived sync.WaitGroup // the requests
	computed := func() string { asked.Add(1); arrived.Wait(); return "8.90" }

	read := func() (price string, err error) {
		arrived.Done()
		err = locking.Once(ctx, store, locking.Options{Backoff: locking.Backoff{Max: 50 * time.Millisecond}}, "price/coffee",
			func(ctx context.Context) (bool, error) {
				price, err = cache.Get(ctx, "price/coffee").Result()
				if errors.Is(err, redis.Nil) {
					return false, nil
				}
				return true, err
			},
			func(ctx context.Context, _ locking.Lease) error {
				price = computed()
				return cache.Set(ctx, "price/coffee", price, time.Minute).Err()
			})
		return price, err
	}
	var requests sync.WaitGroup
	var right atomic.Int64
	arrived.Add(20)
	for range 20 {
		requests.Go(func() {
			if price, err := read(); err == nil && price == "8.90" {
				right.Add(1)
			}
		})
	}
	requests.Wait()
	fmt.Println("requests answered:", right.Load())
	fmt.Println("database asked:", asked.Load())
	// Output:
	// requests answered: 20
	// database asked: 1
}

// Two schedulers start the same job at once. One runs it, and the other waits, and finds it done. That its record is
// written once is the database's task: here SETNX, elsewhere a unique key.
func Example_jobStartedOnce() {
	ctx := context.Background()
	store, records, end := openUse()
	defer end()
	defer records.Del(ctx, "job/invoices-2026-11")

	var arrived sync.WaitGroup // the schedulers
	var runs atomic.Int64

	start := func() error {
		arrived.Done()
		return locking.Once(ctx, store, locking.Options{MaxHold: time.Hour}, "job/invoices-2026-11",
			func(ctx context.Context) (bool, error) {
				n, err := records.Exists(ctx, "job/invoices-2026-11").Result()
				return n > 0, err
			},
			func(ctx context.Context, _ locking.Lease) error {
				runs.Add(1) // here the job runs
				arrived.Wait()
				return records.SetNX(ctx, "job/invoices-2026-11", "done", 48*time.Hour).Err()
			})
	}
	var schedulers sync.WaitGroup
	arrived.Add(2)
	for range 2 {
		schedulers.Go(func() {
			if err := start(); err != nil {
				fmt.Println(err)
			}
		})
	}
	schedulers.Wait()
	fmt.Println("the job ran:", runs.Load())
	// Output:
	// the job ran: 1
}

// A user clicks twice. The second request is refused at once, while the first one runs; it does not wait.
func Example_oneOperationPerUser() {
	ctx := context.Background()
	store, _, end := openUse()
	defer end()

	order := func(work func()) error {
		return locking.Do(ctx, store, locking.Options{NoWait: true}, []string{"user/7"}, func(context.Context, locking.Lease) error {
			work()
			return nil
		})
	}
	err := order(func() {
		second := order(func() { fmt.Println("ordered twice") })
		fmt.Println("the second click is busy:", errors.Is(second, locking.ErrBusy))
	})
	fmt.Println("the first:", err)
	fmt.Println("the next:", order(func() {}))
	// Output:
	// the second click is busy: true
	// the first: <nil>
	// the next: <nil>
}
