// SPDX-License-Identifier: MIT

// Package redlock is the lock on a majority of independent Redis servers that the Redis manual calls Redlock, as short
// as the manual has it. It loses updates; the tests show both ways on five servers and PostgreSQL, each as a script that
// does not depend on luck. Two holders of one lock each add to a balance of 100, by a read and a write:
//
//	A: acquire, read 100          pause          write 110
//	B:                    acquire, read 100, write 101
//
// B is granted the lock although A has not given it up, in two ways:
//
//   - A is stopped (SIGSTOP) after it has checked its lease, and for longer than the TTL.
//   - A has three of the five servers, and one of them restarts without its data. Both
//     leases are within their validity.
//
// In both cases B's update is lost: the balance is 110. With a fence that each holder takes
// from PostgreSQL after it was granted the lock (nextval), and stores in the row before it
// reads, A's write is refused: the balance is 101, and A knows that it failed. That holds without any lock. The lock then
// saves work, and one Redis server saves as much for a fifth of the requests: package redislock, whose locks have a fence. A
// fence of Redlock's own would need an agreement of the servers, which they do not have.
//
// Sources:
//
//   - Redis manual, "Distributed Locks with Redis": the algorithm, its safety argument, crash
//     recovery, and the disclaimer: "You should implement fencing tokens".
//     https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//   - Martin Kleppmann, "How to do distributed locking" (2016): the paused holder, the jump
//     of a clock, no fencing token; "neither fish nor fowl": too heavy for efficiency, and
//     not safe enough for correctness.
//     https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//   - Salvatore Sanfilippo, "Is Redlock safe?" (2016): a monotonic clock, and the time taken
//     before and after the requests; a pause after that concerns every lock that expires; a
//     resource that refuses older tokens can also hand them out.
//     http://antirez.com/news/101
package redlock

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"
)

// Lock is one key on independent servers, with a TTL. The clients must not repeat a request (MaxRetries -1).
type Lock struct {
	Servers []*redis.Client
	Key     string
	TTL     time.Duration
}

// Lease may be trusted until its end, which the manual calls its validity.
type Lease struct {
	Owner string
	Until time.Time
}

// TryAcquire takes the key on a majority of the servers. The numbers are the steps of the manual.
func (l Lock) TryAcquire(ctx context.Context) (lease Lease, taken bool) {
	owner, start := rand.Text(), time.Now()                                             // 1
	granted := l.count(ctx, func(ctx context.Context, s *redis.Client) *redis.BoolCmd { // 2
		return s.SetNX(ctx, l.Key, owner, l.TTL)
	})
	drift := l.TTL/100 + 2*time.Millisecond
	lease = Lease{owner, start.Add(l.TTL - drift)}                    // 4
	if granted > len(l.Servers)/2 && time.Now().Before(lease.Until) { // 3
		return lease, true
	}
	l.Release(ctx, lease) // 5
	return Lease{}, false
}

// release deletes the key if it has this owner.
var release = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) == 1`)

// Release deletes the key on all servers, those included that refused it.
func (l Lock) Release(ctx context.Context, lease Lease) {
	l.count(ctx, func(ctx context.Context, s *redis.Client) *redis.BoolCmd {
		done, err := release.Run(ctx, s, []string{l.Key}, lease.Owner).Bool()
		return redis.NewBoolResult(done, err)
	})
}

// count returns how many servers have done a request, which all get at once, with a time-out that is small compared to the TTL.
func (l Lock) count(ctx context.Context, request func(context.Context, *redis.Client) *redis.BoolCmd) (done int) {
	ctx, cancel := context.WithTimeout(ctx, min(l.TTL/10, 250*time.Millisecond))
	defer cancel()
	answers := make(chan bool, len(l.Servers))
	for _, server := range l.Servers {
		go func() { answers <- request(ctx, server).Val() }()
	}
	for range l.Servers {
		if <-answers {
			done++
		}
	}
	return done
}
