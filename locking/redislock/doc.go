// Package redislock keeps locks in Redis: SET NX PX with a random owner, for one
// key or several at once, with a fence (Store). Beside it are a lock whose release wakes
// its waiters (Waiter), a fair lock, a read-write lock and a semaphore (QueueStore, RW),
// and a change without a lock (Update).
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
// have different names whatever bytes they hold. The tests run the contract of each lock of
// this package on all three.
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
//	the answer to a release that        the release is unknown; the        busy
//	granted the next lease is lost      waiter finds its grant
//	no server                           an error at once (refused), or      the same
//	                                    within the time-outs (silent)
//	a slot of a Cluster moves, or has   a lease of one key is renewed and   they wait, as long as MaxWait
//	no node (TRYAGAIN, CLUSTERDOWN,     released as always; one of several  allows: TryAcquire returns
//	MOVED and ASK without end)          keys, and one of QueueStore, may    ErrBusy. Then the next is
//	                                    be refused, and lost after its TTL  granted
//
// So the package promises exclusion among holders that stop at Until, on a server that
// keeps its data; that a dead holder's keys are free within the TTL; and a fence.
// Store does not promise fairness: the first request after the release is granted. QueueStore
// (below) is fair. Waiter gives each waiting process a turn of 2 ms, in the order in which the processes began
// to wait; a request that arrives at the moment of a release may be granted before them.
// WAIT and min-replicas-to-write make the window of a failover smaller, but do not close it.
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
// # The other locks
//
//	the work                                        lock            fence
//	must be done one at a time                      Store           yes
//	… and many wait for it                          Waiter          yes
//	… in the order of the requests                  NewFair         yes
//	reads, which exclude only writers               NewRW           the writer's alone
//	may be done by n at a time                      NewSemaphore    no: n leases are valid at once
//	needs several keys, all or none                 each of them    as above
//	is a short computation on keys of Redis         Update          none: Redis itself compares
//
// They are in one package because they share the client's settings, the names, and what
// becomes of a request without an answer (request.go). No file of Store refers to them: to
// copy Store alone, leave out inbox.go, wait.go, queue.go, fair.go, rw.go, semaphore.go,
// update.go, and the scripts that these embed.
//
// Several keys are taken by one script, so all or none, also if the client dies meanwhile.
// A script runs on one node, so in a Cluster that needs Options.HashTag. To take keys of
// several slots one by one would be a different lock: one that others see half taken.
//
// # The wake-up
//
// A waiter that polls adds half a pause to each hand-over, and most of its requests are refused. So each lock has
// a line: a sorted set of the processes that wait for it, in the order in which they began to wait. (A process here is
// one Waiter.) A release removes the first process from the line and sends it a message:
//
//	waiter A          holder             server
//	 subscribe ------------------------->  once for each process, at its first wait
//	 acquire.lua ----------------------->  busy
//	 await.lua ------------------------->  busy; ZADD lock{366}line:sku-1: A is in the line
//	                   wake.lua -------->  DEL …; ZPOPMIN: A is the first, so PUBLISH …wake:A
//	 <------------------------------------ the name of the lock
//	 await.lua ------------------------->  granted
//
// A release without waiters publishes nothing: it looks for a line, one command more than
// that of Store, in the same script. In each process only the first waiter for a key sends
// requests, and the others wait in a locking.Queue, in order. If there are others, the grant
// puts the process at the end of the line again.
//
// Suppose that the releasing process has another waiter for this lock, and is the first in the line or has had the lock for
// less than 2 ms. Then the script sends no message. It grants the lock to that waiter, as acquire.lua would, and the
// reply to the release contains the fence of the new lease:
//
//	holder, waiter B    server
//	 wake.lua ------->  DEL …; ZPOPMIN: the same process; SET … fence:B
//	 <----------------  the fence: B holds the lock; if more wait, the process is in the line again
//
// So a hand-over within a process is one request, and with appendfsync always one sync of the disk, where release
// and acquire are two. B counts its Until from before this request. If the answer is lost, B asks with await.lua,
// as the same owner, and finds its grant. If B has given up meanwhile, the lock is released again.
//
// So while other processes wait, a process serves its own waiters for 2 ms at most: its turn.
//
// Processes are woken one by one, and not all at once, for two reasons. Each that comes too
// late costs two scripts. And Redis sends a message to its subscribers in the order in which
// they subscribed: the last of three would come too late each time, and starve.
//
// The line does not guarantee an order. A request that arrives before that of the woken process is
// granted; the woken process then returns to the front of the line, or, if a grant had put it there, to its end.
// If a process that waits for several locks is woken while one of them is still held, it wakes the next process for
// each lock that is free. The release of a lock that is gone, because it expired or was deleted, wakes the next process too.
// A process that has subscribed to nothing, because it is dead, is passed over (but not in a Cluster, where PUBLISH does not
// count the subscribers of other nodes).
//
// A message may be lost: Redis sends it once, to the current subscribers. So a waiter that gets no message sends its
// next request after a quarter of a second. A new subscription wakes all waiters, because messages before it may have
// been lost. A subscription that has been silent for two seconds is sent a ping, and replaced if no answer comes
// within two more: a connection whose peer has disappeared would be silent for ever.
//
// # The queue
//
// A fair lock, a read-write lock and a semaphore are one mechanism, with different rules
// for which holders may be there at once. Each key has a sorted set, in which each owner has two members:
//
//	lock{366}queue:sku-1    x:10000:4RT…:7FQ…   -1795256814078066   a holder: minus its grant
//	                       ~x:10000:4RT…:7FQ…       1795256820078   its deadline, the server's time in ms
//	                        s:10000:9WB…:2KD…    1795256814301220   a waiter: its ticket
//	                       ~s:10000:9WB…:2KD…       1795256817301   its deadline
//
// The name of an owner begins with its mode, x (exclusive) or s (shared), with the TTL of its leases, and with its
// process. A grant and a ticket are the server's time in microseconds, or more, so that each is above those before it. The
// deadline of a holder is a TTL after its last renewal, that of a waiter three seconds after one of its requests.
// A request that finds more than two seconds left writes nothing. (permits:… are the names of a semaphore.)
//
//	          take.lua, or serve in queue.lua: first in
//	          the queue of each key, and fits in each
//	┌───────┐ ───────────────────────────────▶ ┌───────┐ ────┐ keep.lua: the TTL
//	│ waits │                                  │ holds │     │ restarts
//	└───────┘ ─┐ take.lua: the ticket          └───────┘ ◀───┘
//	  │    ▲   │ is kept                           │
//	  │    └───┘                                   │
//	  └──────────▶ forgotten ◀─────────────────────┘
//	          leave.lua, or its deadline is over: serve
//
// Whatever removes an owner also serves the queue: it grants the key to the first waiter, and to the next as long as they
// fit, and sends each a message:
//
//	waiter B           holder A            server
//	 subscribe -------------------------->  once for each process, at its first wait
//	 take.lua --------------------------->  busy: B has the ticket T
//	                    leave.lua ------->  ZREM A; SET … fence, ZADD … -fence B; PUBLISH …wake:9WB…
//	 <------------------------------------  B/fence/T: B holds the key
//
// So a hand-over is one request and a message, also between processes, and with appendfsync always one sync of the disk.
//
// B counts its Until from before its last request, not from the arrival of the message, which may be late. That is
// safe, since the server started the TTL after it had answered that request. As a waiter sends a request every quarter of a second, the
// lease is that much shorter at most. If half of its trust is over, B sends take.lua, as the same owner, and the TTL restarts. A
// message with a ticket that is not the last one of B is no grant: B was forgotten after it, and the grant may have ended.
//
// Two kinds of waiter are granted nothing by another owner's request. Their message has no grant, and they send take.lua:
//
//   - One that wants several keys. A script on one key cannot tell whether the others are free.
//   - One whose process does not listen (PUBSUB NUMSUB): it is dead, or has not subscribed yet. It keeps its ticket. A node of a
//     Cluster counts its own subscribers. With Options.HashTag they are on the node of the keys; without, a hand-over of
//     a key of another node takes a second request.
//
// Invariant: the holders of a key are one exclusive owner, or shared owners up to the
// limit; and no owner is granted a key while another waits for it with a smaller ticket.
// The second holds for readers and writers alike, so neither starves; and for TryAcquire,
// which is busy while others wait. It costs throughput: a reader waits behind a writer
// that waits for other readers.
//
// A request for several keys is in the queues of all of them, in one common order, since a
// script enters them together. So two requests never wait for each other. It delays those
// behind it, although some of its keys may be free.
//
// A lease of a reader or of a semaphore has Fence 0, which a guard refuses. The number of its grant is part of
// Lease.Owner, so that Renew fails if the lease has ended and a late duplicate of its request took the key again.
//
//	what happens                        what the owner sees                what other clients see
//	a waiter's process dies             nothing                            3 s at most until the next is granted,
//	                                                                       for any number of dead waiters
//	a waiter is paused, or cut off,     its next request: the end of       the next is granted, a TTL later if
//	for 2 to 3 s                        the queue                          the waiter was granted the key first
//	a waiter's machine disappears       nothing                            the same
//	a waiter's ctx ends                 ErrBusy and ctx.Err(), at once     its ticket, or its grant, is removed in
//	                                                                       the background: the next is granted
//	a message is lost, or no            a quarter of a second more: it     held for that time
//	permission for the channel          finds its grant
//	a message is late                   a shorter lease, or one more       nothing
//	                                    request
//	a duplicate of a request arrives    nothing                            a ticket for 3 s, which costs the others
//	when its owner has left                                                a TTL if its turn comes
//	the reply to take is lost           retried as the same owner: its     nothing
//	                                    ticket, or its grant
//	a holder requests its keys again    it waits for itself                nothing
//	processes of an earlier version     waits until their sets have ended  the same: stop them all first
//	wait for the same key
//	processes name different numbers    nothing                            the greatest number is valid
//	of permits
//	the sorted set is evicted           Renew: ErrLost; waiters go to the  free at once: two holders until
//	                                    end of the queue                   the renewal
//	a fair lock and a Store with the    nothing                            they do not exclude each other
//	same Options
//
// All that can go wrong with Store can go wrong here: a failover, a restart without the
// last writes, a jump of the server's clock.
//
// # Where to find what
//
// The package is longer than one lock, because it has five, their waiters, a guard, and a change without a lock:
//
//	redislock.go, request.go, acquire.lua,  Store; a request with an end, a retry of what has no answer
//	renew.lua, release.lua
//	slot.go                                 what a Cluster refuses while a slot moves
//	client.go                               New, and the settings without which a request ends too late
//	wait.go, await.lua, wake.lua            Waiter
//	inbox.go                                the subscription of Waiter and of the queue, and its replacement
//	queue.go, queue.lua, take.lua,          the queue, and QueueStore
//	keep.lua, leave.lua
//	open.lua, close.lua                     the beginning of take.lua, and of a release: a key without other owners
//	fair.go, rw.go, semaphore.go            the fair lock, the read-write lock, the semaphore: its rules
//	guard.go, guard.lua                     Guard
//	update.go                               Update
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
//   - D. Dice, V. J. Marathe, N. Shavit, "Lock Cohorting", PPoPP 2012: to hand a lock over within a group for a
//     while, where that costs less, before the next group.
//   - Redisson's issues: 1104, 2099, 3004, 3730 and 5019 (tickets of a fair lock that
//     delay or block the living), 1763 (a release before the subscription), 2144 (one
//     expiry for all readers).
//   - dv/redis-semaphore, issue 13: a semaphore that trusts its clients' clocks.
//   - PerpetualSoftware/pad, pull request 1195: a subscription that is silent for ever.
package redislock
