// Package redislock keeps locks in Redis: SET NX PX with a random owner, for one
// key or several at once, with a fence.
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
//
// The braces are the hash tag of Redis Cluster: a lock and the fence counter of its
// bucket are always on one node, so that one script changes both. Names are the
// same on a single server, under Sentinel and in a Cluster, and different keys
// have different names whatever bytes they hold.
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
// these counters. So the fence grows for each key, even if its leases include
// different other keys. A server that lost its data continues above its earlier fences,
// unless its clock was set back as well. The fence alone must not guard anything that
// outlives Redis.
//
// Until counts from before the request that set the TTL, on the monotonic clock. It
// is earlier than the expiry by a hundredth of the TTL + 2 ms, for clocks that run at
// different rates. A slow answer does not prolong the trust.
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
//
// So the package promises exclusion among holders that stop at Until, on a server that
// keeps its data; that a dead holder's keys are free within the TTL; and a fence.
// It does not promise fairness: the first request after the release is granted.
// WAIT and min-replicas-to-write make the window of a failover smaller, but do not close it.
//
// Against eviction, set maxmemory-policy noeviction, or use a server for locks alone.
// Against restarts, set appendonly yes with appendfsync always, or keep clients from a
// restarted server for the longest TTL.
//
// # The client
//
// New refuses a client with go-redis' defaults, unless it is wrapped. Connect makes a
// suitable client for a single server, and Tune sets the options for any kind of
// server. In a Cluster several keys in one lease need Options.HashTag.
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
package redislock
