// SPDX-License-Identifier: MIT

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

// A write that a holder with an older fence cannot make.
func ExampleGuard() {
	ctx := context.Background()
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), 2*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	defer client.Del(ctx, "{example/stock}", "{example/stock}fence")

	sell := redislock.NewGuard(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
	for _, fence := range []locking.Fence{33, 34, 33} { // the first holder continues after a pause
		left, err := sell.Run(ctx, client, "{example/stock}fence", fence, []string{"{example/stock}"}, 2)
		fmt.Println(left, errors.Is(err, locking.ErrStale))
	}
	// Output:
	// -2 false
	// -4 false
	// <nil> true
}
