// SPDX-License-Identifier: MIT

// Package redislock keeps locks in Redis: SET NX PX with a random owner, for one
// key or several at once, with a fence, and a release that wakes the waiters (New). Beside it are the check of a fence where
// the write goes to Redis (Guard), and a change without a lock (Update). Package redisqueue has a fair lock, a read-write
// lock and a semaphore.
//
// The question: several programs must do something one at a time, and share a
// Redis server. How long may a holder rely on its lock, and when must it stop?
//
// The invariant: at any moment at most one lease of a key is within its Until,
// as long as Redis keeps what it has acknowledged and its clock does not jump.
// Both conditions fail in practice (below), so this lock only saves work. A row lock
// or a check of the Fence, where the work is written, makes the result correct.
//
// # What is stored
//
//	lock{366}lock:sku-1   "1795256814078066:R7FQ…"   fence:owner, expires
//	lock{366}fence        "1795256814078066"         never expires, 1024 at most
//	lock{366}wait:sku-1   "1"                        a process waits for the lock, expires after a second
//
// The braces are the hash tag of Redis Cluster: a lock and the fence counter of its
// bucket are always on one node, so that one script changes both. Names are the
// same on a single server, under Sentinel and in a Cluster, and different keys
// have different names whatever bytes they hold. The tests run the contract on all three.
//
//	          acquire.lua: all keys free               renew.lua: all keys "fence:owner"
//	┌──────┐ ──────────────────────────────▶ ┌──────┐ ────┐
//	│ free │                                 │ held │     │ TTL restarts
//	└──────┘ ◀────────────────────────────── └──────┘ ◀───┘
//	          release.lua: DEL where the
//	          owner is the same; or expiry
//
// Each arrow is one script, hence atomic. acquire.lua sent twice with one owner makes
// one grant: the second run finds its own owner, restarts the TTL and keeps the fence.
//
// The fence is the greatest of all counters of the lease's keys, plus 1, or the
// server's clock in microseconds if that is greater. The script writes it back to all
// these counters. So the fences of a key grow, whatever other keys its leases include.
// A server that lost its data continues above its earlier fences,
// unless its clock was set back as well. The fence alone must not guard anything that
// outlives Redis.
//
// Until counts from before the request that set the TTL, on the monotonic clock. It
// is earlier than the expiry by a hundredth of the TTL + 2 ms, for clocks that run at
// different rates. A slow answer does not prolong the trust.
//
// # The waiters
//
// In each process the requests for a key wait in a locking.Line, and the first of them asks Redis. If the key is busy, acquire.lua
// leaves a mark; release.lua, which finds one, publishes the name of the lock, and the first waiter of each process asks
// again at once:
//
//	waiter            holder             server
//	 subscribe ------------------------->  once for each process, at its first wait
//	 acquire.lua ----------------------->  busy; SET lock{366}wait:sku-1
//	                   release.lua ----->  DEL …; the mark is there: PUBLISH lock{}wake
//	 <------------------------------------ the name of the lock
//	 acquire.lua ----------------------->  granted
//
// A release without waiters publishes nothing. A message may be lost: Redis sends it once, to the current subscribers, and
// sends none when a lock expires. So a waiter asks again every quarter of a second in any case. A new subscription wakes all
// waiters. A subscription that has been silent for two seconds is sent a ping, and replaced if no answer comes
// within two more: a connection whose peer has disappeared would be silent for ever.
//
// Among processes there is no order. Redis sends a message to its subscribers in the order in which
// they subscribed, so each waits for up to 0.3 ms before it asks: otherwise the last would always come too late. A process that
// others wait for leaves them the key for 2 ms after each turn of 5 ms, so that none starves.
//
// # What can go wrong
//
//	what happens                        what the holder sees                what other clients see
//	the reply to acquire is lost        retried as the same owner, for      busy
//	                                    half the TTL: the same fence
//	no reply comes at all               ErrOutcomeUnknown after half the    busy for at most one
//	                                    TTL; removed in the background      TTL after that
//	a duplicate of the request arrives  its later Renew: ErrLost, since     busy for at most
//	when the lease is over              the fence differs                   one TTL
//	the reply to release is lost        ErrOutcomeUnknown; retried in the   busy for at most one
//	                                    background                          TTL after a renewal
//	the reply to renew is lost          an error that is not ErrLost: the   busy
//	                                    old Until still holds
//	the holder pauses beyond the TTL    Until is past when it wakes; Renew  free, then a greater
//	                                    and Release: ErrLost                fence
//	DEL by an operator, eviction        Renew: ErrLost, up to a third of    free at once: two
//	                                    the TTL later, with locking.Do      holders until then
//	failover to a replica that has not  the same                            the same
//	received the lock yet
//	restart without the last writes     the same                            the same
//	the server's clock jumps ahead      the same                            the same
//	the server's clock jumps back       nothing                             busy for longer; the
//	                                                                        counter keeps fences growing
//	no server                           an error at once (refused), or      the same
//	                                    within the time-outs (silent)
//	a slot of a Cluster moves, or has   a lease of one key is renewed and   they wait, as long as MaxWait
//	no node (TRYAGAIN, CLUSTERDOWN,     released as always; one of several  allows: TryAcquire returns
//	MOVED and ASK without end)          keys may be refused, and lost       ErrBusy. Then the next is
//	                                    after its TTL                       granted
//
// So the package promises exclusion among holders that stop at Until, on a server that
// keeps its data; that a dead holder's keys are free within the TTL; and a fence. What all stores do about answers that are
// lost is in package driver. WAIT and min-replicas-to-write make the window of a failover smaller, but do not close it.
//
// Against eviction, set maxmemory-policy noeviction, or use a server for locks alone.
// Against restarts, set appendonly yes with appendfsync always, or keep clients from a
// restarted server for the longest TTL.
//
// # The guard
//
// Guard checks the fence of a lease, from this or any other store, where the write goes to Redis. Redis
// has no transaction that can be rolled back, so the check is the beginning of the script that writes:
//
//	guard := redislock.NewGuard(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)
//	sum, err := guard.Run(ctx, client, "{account/7}fence", lease.Fence, []string{"{account/7}"}, 10)
//
// Invariant: of the scripts that ran under one guard, none has a fence smaller than one before it, as
// long as Redis keeps what it has acknowledged. A Redis that loses its data loses the fence and what it guards.
//
//	an old holder is late           ErrStale; its script did not run
//	one holder writes several times an equal fence passes
//	the answer is lost              ErrOutcomeUnknown; the same holder may repeat a script that is idempotent
//	the script fails half way       Redis undoes nothing; the fence is stored
//	the guard is evicted, or        an old holder passes: noeviction, and no TTL
//	deleted
//	the client checks the fence,    an old holder passes: its write may come after the next holder's
//	and then writes
//
// # Several keys
//
// Several keys are taken by one script, so all or none, also if the client dies meanwhile.
// A script runs on one node, so in a Cluster that needs Options.HashTag. To take keys of
// several slots one by one would be a different lock: one that others see half taken.
//
// # A change without a lock
//
// Update reads keys, computes, and lets Redis execute the result only if none of the keys
// has changed meanwhile (WATCH). It has no TTL that could end too early, and no holder that
// could be paused. But a try that meets a conflict is wasted, and one client may lose all its tries: then
// Update returns ErrConflict. BenchmarkUpdate compares its rate with that of
// the locks, in pairs, for 1, 8 and 64 clients of one key.
//
// # The client
//
// New refuses a client with go-redis' defaults, unless it is wrapped. Connect makes a
// suitable client for a single server, and Tune sets the options for any kind of
// server. In a Cluster several keys in one lease need Options.HashTag.
//
// The client of a Cluster follows MOVED and ASK itself, up to MaxRedirects (3) times. While a slot moves from one node to
// another, neither grants a lock in it: a lock that is free is a key that does not exist, and its fence counter is one that
// does. A Cluster refuses a script on two such keys (TRYAGAIN) until the slot has moved, which takes minutes if the slot is large.
//
// A request returns as soon as ctx ends, with one exception. A cancellation (not a
// deadline) during the first request to a server that has just stopped answering takes
// effect after a sixth of the TTL or 250 ms, whichever is less.
//
// # Sources
//
//   - Redis manual, "Distributed Locks with Redis": SET NX PX, random value,
//     compare-and-delete, validity time and drift; and why failover breaks it.
//     https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//   - Martin Kleppmann, "How to do distributed locking" (2016): the paused
//     holder, and the fence as the answer.
//     https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//   - Salvatore Sanfilippo, "Is Redlock safe?" (2016): what a monotonic clock and
//     counting from before the request give. http://antirez.com/news/101
//   - PerpetualSoftware/pad, pull request 1195: a subscription that is silent for ever.
package redislock
