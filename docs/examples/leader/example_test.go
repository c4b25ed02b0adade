// SPDX-License-Identifier: MIT

// Package leader_test is an example to copy: of several processes, one runs a loop, for as long as it lives.
package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"shop/locking"
	"shop/locking/redislock"
)

// lead runs step again and again while this process is the leader, and otherwise waits to become it, until ctx ends. A step
// that must not be done by two processes checks the fence where it writes: the end of its ctx may come late.
func lead(ctx context.Context, locks locking.Store, step func(context.Context, locking.Fence) error) {
	for ctx.Err() == nil {
		err := locking.Do(ctx, locks, locking.Options{MaxHold: locking.NoLimit}, []string{"leader"}, func(held context.Context, l locking.Lease) error {
			for held.Err() == nil && ctx.Err() == nil {
				if err := step(held, l.Fence); err != nil {
					return err // gives the leadership up: another process may do better
				}
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			log.Print("not the leader any more: ", err)
			time.Sleep(time.Second)
		}
	}
}

func Example() {
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), 5*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var leaders, steps atomic.Int64
	done := make(chan bool)
	for range 3 { // as three processes
		locks, err := redislock.New(client, 5*time.Second, redislock.Options{Prefix: "leader"})
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close()
		go func() {
			lead(ctx, locks, func(context.Context, locking.Fence) error {
				if leaders.Add(1) > 1 {
					return errors.New("two leaders")
				}
				defer leaders.Add(-1)
				if steps.Add(1) == 100 {
					cancel()
				}
				return nil
			})
			done <- true
		}()
	}
	for range 3 {
		<-done
	}
	fmt.Println(steps.Load(), "steps, one at a time")
	// Output: 100 steps, one at a time
}
