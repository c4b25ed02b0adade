// SPDX-License-Identifier: MIT

package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"shop/locking"
	"shop/locking/filelock"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "") // in a service: a folder that is never cleaned up, such as /var/lib/shop/locks
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := filelock.New(filepath.Join(dir, "locks"))
	if err != nil {
		log.Fatal(err)
	}

	wait := locking.Options{MaxWait: time.Minute, Backoff: locking.Backoff{Max: 5 * time.Millisecond}}
	err = locking.Do(ctx, store, wait, []string{"report/2026-11"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "report/2026-11")
		fmt.Println("another holder:", errors.Is(err, locking.ErrBusy))
		fmt.Println("a fence to write with:", l.Fence > 0)
		fmt.Println("it expires:", !l.Until.IsZero())
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// another holder: true
	// a fence to write with: true
	// it expires: false
	// done: <nil>
}
