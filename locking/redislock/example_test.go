// SPDX-License-Identifier: MIT

package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/redislock"
)

func Example() {
	ctx, ttl := context.Background(), 2*time.Second
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), ttl)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := redislock.New(client, ttl, redislock.Options{Prefix: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{}, []string{"report/2026-11"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "report/2026-11")
		fmt.Println("another holder:", errors.Is(err, locking.ErrBusy))
		fmt.Println("a fence to write with:", l.Fence > 0)
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// another holder: true
	// a fence to write with: true
	// done: <nil>
}

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

func ExampleNew() {
	store, closeStore := open(redislock.New)
	defer closeStore()
	ctx, menu, next := context.Background(), []string{"cache/menu"}, make(chan locking.Lease)
	err := locking.Do(ctx, store, locking.Options{}, menu, func(_ context.Context, held locking.Lease) error {
		go func() {
			lease, _ := store.Acquire(ctx, menu...) // returns as soon as the key is released
			next <- lease
		}()
		fmt.Println("the menu is read under a fence:", held.Fence > 0)
		return nil
	})
	lease := <-next
	fmt.Println("the next has the key:", lease.Fence > 0, err)
	_ = store.Release(ctx, lease)
	// Output:
	// the menu is read under a fence: true
	// the next has the key: true <nil>
}

func ExampleUpdate() {
	ctx := context.Background()
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), 5*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	client.Set(ctx, "example{credits}", 100, time.Minute)
	err = redislock.Update(ctx, client, redislock.UpdateOptions{}, []string{"example{credits}"}, func(ctx context.Context, tx *redis.Tx) (func(redis.Pipeliner), error) {
		credits, err := tx.Get(ctx, "example{credits}").Int()
		if err != nil || credits < 30 {
			return nil, err
		}
		return func(p redis.Pipeliner) { p.Set(ctx, "example{credits}", credits-30, time.Minute) }, nil
	})
	fmt.Println(client.Get(ctx, "example{credits}").Val(), err)
	// Output: 70 <nil>
}
