// SPDX-License-Identifier: MIT

// Package held lists the locks that exist in a server, and ends one: for operators, while the program that holds it may be
// alive. It reads the names that redislock, etcdlock and pglock write, and is no part of a lock.
//
// # What ending a lock does
//
//	the holder               hears of the loss at its next renewal, at most a third of the TTL later, and its work is cancelled
//	the next waiter          is granted the key, as after an expiry
//	a write of the holder    is refused by a fence that the resource checks, and waits for a row lock; without them there
//	                         are two holders
//	the fence                is kept: a later grant has a greater one
//
// A lock in Redis without a TTL was not written by redislock: Left is negative, and nothing frees it but End. List finds it only
// if it has a name of redislock.
package held

import (
	"context"
	"time"

	"shop/locking"
)

// Lock is a lock that exists.
type Lock struct {
	Key     string
	Owner   string
	Fence   locking.Fence
	Left    time.Duration // of its TTL; negative: it has none
	Waiters int           // in etcd, how many; in Redis, 1 if a process waits for a message; in PostgreSQL, 0
}

// Store is a server with locks.
type Store interface {
	// List returns the locks in the order of their keys.
	List(ctx context.Context) ([]Lock, error)
	// End frees a key of any holder. ended is false if it was free.
	End(ctx context.Context, key string) (ended bool, err error)
}
