// SPDX-License-Identifier: MIT

package zklock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"shop/locking"
	"shop/locking/zklock"
)

// The fence is checked in the transaction that writes.
func Example() {
	ctx := context.Background()
	store, err := zklock.New(ctx, strings.Split(os.Getenv("SHOP_ZOOKEEPER_SERVERS"), ","), 10*time.Second, zklock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{}, []string{"account/1"}, func(ctx context.Context, l locking.Lease) error {
		// UPDATE accounts SET fence = $2 WHERE id = $1 AND fence <= $2 …
		fmt.Println(l.Keys, l.Fence > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// [account/1] true
	// <nil>
}
