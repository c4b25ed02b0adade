// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"shop/locking"
	"shop/locking/combine"
)

// combined is compared with the locks on all servers, where several goroutines want a key.
var combined = lock{"combine", "redis", true, openCombined}

// lockTurn is how long a process keeps the lease while its goroutines want the key: many times what one batch takes,
// and short compared with an interval, in which each process must get its turn.
const lockTurn = 10 * time.Millisecond

// delegated is a locker whose holder runs the sections of all goroutines that wait.
type delegated struct {
	*combine.Combiner[func(), struct{}]
	end func()
}

func (d delegated) hold(ctx context.Context, key string, section func()) error {
	_, err := d.Do(ctx, section, key)
	return err
}

func (d delegated) close() {
	d.Close()
	d.end()
}

func openCombined(context.Context) (locker, error) {
	s, end, err := redisStoreOf(newFair)
	if err != nil {
		return nil, err
	}
	c, err := combine.New(combine.Config[func(), struct{}]{
		Store: s, MaxTurn: lockTurn, Pause: time.Microsecond, // the fair lock tells the next process
		Apply: func(_ context.Context, _ locking.Lease, batch []func()) ([]combine.Result[struct{}], error) {
			for _, section := range batch {
				section()
			}
			return make([]combine.Result[struct{}], len(batch)), nil
		},
	})
	return delegated{c, end}, err
}
