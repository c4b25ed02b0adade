// Package redislock keeps locks in Redis: SET NX PX with a random owner, for one
// key or several at once, with a fence.
//
// The question: several programs want to do something one at a time, and they
// have a Redis. How long may a holder rely on its lock, and when must it stop?
//
// The invariant: at any moment at most one lease of a key is within its Until,
// as long as Redis keeps what it has acknowledged and its clock does not jump.
// Both conditions fail in practice (below), so this lock saves work. Correctness is
// decided where the work is written, by a row lock or by the Fence.
//
// # What is stored
//
//	lock{366}lock:sku-1   "1795256814078066:R7FQ…"   fence:owner, expires
//	lock{366}fence        "1795256814078066"         never expires, 1024 at most
//
// The braces are the hash tag of Redis Cluster: a lock and the counter of its
// bucket are always on one node, so that one script changes both. Names are the
// same on a single server, under Sentinel and in a Cluster, and different keys
// have different names whatever bytes they hold.
//
//	          acquire.lua: all keys free               renew.lua: all keys "fence:owner"
//	┌──────┐ ──────────────────────────────▶ ┌──────┐ ────┐
//	│ free │                                 │ held │     │ TTL starts anew
//	└──────┘ ◀────────────────────────────── └──────┘ ◀───┘
//	          release.lua: DEL where the
//	          owner is the same; or the TTL
//
// Each arrow is one script, hence atomic. acquire.lua sent twice by one owner is
// one grant: the second finds itself, starts the TTL anew and keeps the fence.
//
// The fence is max(counter + 1, microseconds of the server's clock), over the
// counters of all keys of the lease, and is written back to all of them. So it
// grows for each key, also for keys that met others in between; and a server
// that lost its data goes on above what it gave before, unless its clock was set
// back as well. Nothing that outlives Redis should be guarded by it alone.
//
// Until counts from before the request that set the TTL, on the monotonic clock,
// and leaves a hundredth of the TTL + 2 ms for clocks that run at different
// rates. A slow answer does not prolong the trust.
//
// # What can go wrong
//
//	what happens                        what the holder sees                what others see
//	the reply to acquire is lost        asked again as the same owner,      busy
//	                                    for half the TTL: the same fence
//	no reply comes at all               ErrOutcomeUnknown after half the    busy for at most one
//	                                    TTL; removed in the background      TTL after that
//	a duplicate of the request arrives  its later Renew: ErrLost, since     busy for at most
//	when the lease is over              the fence is another                one TTL
//	the reply to release is lost        ErrOutcomeUnknown; tried again in   busy for at most one
//	                                    the background                      TTL after a renewal
//	the reply to renew is lost          an error that is not ErrLost: the   busy
//	                                    old Until still holds
//	the holder pauses beyond the TTL    Until is over when it wakes; Renew  free, then a greater
//	                                    and Release: ErrLost                fence
//	DEL by an operator, eviction        Renew: ErrLost, up to a third of    free at once: two
//	                                    the TTL later, with locking.Do      holders until then
//	failover to a replica that had      the same                            the same
//	not heard of the lock yet
//	restart without the last writes     the same                            the same
//	the server's clock jumps ahead      the same                            the same
//	the server's clock jumps back       nothing                             busy for longer; the
//	                                                                        counter keeps fences growing
//	no server                           an error at once (refused), or      the same
//	                                    within the time-outs (silent)
//
// So it promises exclusion among holders that stop at Until, on a server that keeps
// its memory; that a dead holder's keys are free within the TTL; and a fence.
// It does not promise fairness: the first request after the release is granted.
// And WAIT or min-replicas-to-write only make the window of a failover smaller.
//
// Against eviction: maxmemory-policy noeviction, or a server for locks alone.
// Against restarts: appendonly yes with appendfsync always; or keep a restarted
// server away from its clients for the longest TTL.
//
// # The client
//
// A client with go-redis' defaults does not suit: New refuses it, unless it is wrapped.
// Connect makes one for a single server, Tune the options of any kind. In a
// Cluster several keys in one lease need Options.HashTag.
//
// A request returns as soon as ctx ends, with one exception: a cancellation (not a
// deadline) while the first request to a server that has just fallen silent is
// waiting, which takes a sixth of the TTL or 250 ms, whichever is less.
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
