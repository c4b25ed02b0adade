// SPDX-License-Identifier: MIT

package redisqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/redislock"
	"shop/locking/redisqueue"
)

// open makes a store with a client of its own. close closes both.
func open[S interface{ Close() }](make func(redis.UniversalClient, time.Duration, redislock.Options) (S, error)) (s S, close func()) {
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), 5*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	for range 20 { // a busy machine may need several tries to connect
		if client.Ping(context.Background()).Err() == nil {
			break
		}
	}
	if s, err = make(client, 5*time.Second, redislock.Options{Prefix: "example"}); err != nil {
		log.Fatal(err)
	}
	return s, func() { s.Close(); _ = client.Close() }
}

func ExampleNewFair() {
	fair, closeFair := open(redisqueue.NewFair)
	defer closeFair()
	err := locking.Do(context.Background(), fair, locking.Options{MaxWait: time.Minute}, []string{"ticket-desk"}, func(_ context.Context, l locking.Lease) error {
		fmt.Println("served in order, with a fence:", l.Fence > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// served in order, with a fence: true
	// <nil>
}

func ExampleNewRW() {
	rw, closeRW := open(redisqueue.NewRW)
	defer closeRW()
	read := func(fn func() error) error {
		return locking.Do(context.Background(), rw.Read, locking.Options{}, []string{"price-list"}, func(context.Context, locking.Lease) error { return fn() })
	}
	err := read(func() error {
		_, busy := rw.Write.TryAcquire(context.Background(), "price-list")
		fmt.Println("a writer has to wait:", errors.Is(busy, locking.ErrBusy))
		return read(func() error { // no writer waits
			fmt.Println("a second reader reads")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// a writer has to wait: true
	// a second reader reads
	// <nil>
}

func ExampleNewSemaphore() {
	two, closeTwo := open(func(c redis.UniversalClient, ttl time.Duration, o redislock.Options) (*driver.Store, error) {
		return redisqueue.NewSemaphore(c, ttl, 2, o)
	})
	defer closeTwo()
	for i := range 3 {
		lease, err := two.TryAcquire(context.Background(), "printers")
		fmt.Println("job", i, "prints:", err == nil)
		if err == nil {
			defer func() { _ = two.Release(context.Background(), lease) }()
		}
	}
	// Output:
	// job 0 prints: true
	// job 1 prints: true
	// job 2 prints: false
}
