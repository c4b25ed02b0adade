package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"shop/locking"
	"shop/locking/redlock"
)

func Example() {
	ctx := context.Background()
	servers := strings.Fields(os.Getenv("REDLOCK_URLS")) // of five servers
	store, err := redlock.New(servers, 10*time.Second, redlock.Options{Prefix: "example"})
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
	// a fence to write with: false
	// done: <nil>
}
