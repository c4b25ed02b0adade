// SPDX-License-Identifier: MIT

// Package redisqueue has three locks in Redis that grant their keys in the order of the requests, among all processes: a fair
// lock (NewFair), a read-write lock (NewRW) and a semaphore (NewSemaphore). Their client and Options are those of package redislock,
// whose lock is simpler, and faster where no order is needed.
//
//	the work                                        lock            fence
//	must be done in the order of the requests       NewFair         yes
//	reads, which exclude only writers               NewRW           the writer's alone
//	may be done by n at a time                      NewSemaphore    no: n leases are valid at once
//
// # The question
//
// Who gets a key that many wait for, if no request may starve, and some of those who wait may be dead?
//
// # The queue
//
// The three are one mechanism, with different rules
// for which holders may be there at once. Each key has a sorted set, in which each owner has two members:
//
//	lock{366}queue:sku-1    x:4RT…:7FQ…   -1795256814078066   a holder: minus its grant
//	                       ~x:4RT…:7FQ…       1795256820078   its deadline, the server's time in ms
//	                        s:9WB…:2KD…    1795256814301220   a waiter: its ticket
//	                       ~s:9WB…:2KD…       1795256817301   its deadline
//
// The name of an owner begins with its mode, x (exclusive) or s (shared), and its
// process. A grant and a ticket are the server's time in microseconds, or more, so that each is above those before it. The
// deadline of a holder is a TTL after its last renewal, that of a waiter three seconds after one of its requests.
// A request that finds more than two seconds left writes nothing. (permits:… are the names of a semaphore.)
//
//	          take.lua: first in the queue of
//	          each key, and fits in each
//	┌───────┐ ───────────────────────────────▶ ┌───────┐ ────┐ keep.lua: the TTL
//	│ waits │                                  │ holds │     │ restarts
//	└───────┘ ─┐ take.lua: the ticket          └───────┘ ◀───┘
//	  │    ▲   │ is kept                           │
//	  │    └───┘                                   │
//	  └──────────▶ forgotten ◀─────────────────────┘
//	          leave.lua, or its deadline is over
//
// Whatever removes an owner also serves the queue: it sends the first waiter a message, if it fits beside the holders that
// remain. The waiter takes the key with a request of its own. Until then, or until its deadline is over, no other waiter is granted
// the key. A waiter that hears nothing asks again every quarter of a second.
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
// # What goes wrong, and what happens then
//
//	what happens                        what the owner sees                what other clients see
//	a waiter's process dies             nothing                            3 s at most until the next is granted,
//	                                                                       for any number of dead waiters
//	a waiter is paused, or cut off,     its next request: the end of       the next is granted
//	for 2 to 3 s                        the queue
//	a waiter's ctx ends                 ErrBusy and ctx.Err(), at once     its ticket, or its grant, is removed in
//	                                                                       the background: the next is told
//	a message is lost, or no            a quarter of a second more         the key is free for that time
//	permission for the channel
//	a duplicate of a request arrives    nothing                            a ticket for 3 s, or a grant for one
//	when its owner has left                                                TTL
//	a slot of a Cluster moves           a lease of one key is kept; its    they wait
//	                                    release is repeated, or the TTL
//	                                    ends it
//	more than 1,024 waiters leave at    nothing                            tickets for 3 s
//	once
//	the reply to take is lost           sent again as the same owner: its  nothing
//	                                    ticket, or its grant
//	a holder requests its keys again    it waits for itself                nothing
//	processes name different numbers    nothing                            the greatest number is valid
//	of permits
//	the sorted set is evicted           Renew: ErrLost; waiters go to the  free at once: two holders until
//	                                    end of the queue                   the renewal
//	a fair lock and a Store of          nothing                            they do not exclude each other
//	redislock with the same Options
//
// All that can go wrong with redislock can go wrong here: a failover, a restart without the
// last writes, a jump of the server's clock.
//
// # Sources
//
//   - Redisson's issues: 1104, 2099, 3004, 3730 and 5019 (tickets of a fair lock that
//     delay or block the living), 1763 (a release before the subscription), 2144 (one
//     expiry for all readers).
//   - dv/redis-semaphore, issue 13: a semaphore that trusts its clients' clocks.
package redisqueue
