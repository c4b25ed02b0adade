package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

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
