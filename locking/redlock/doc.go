// Package redlock, which is not recommended, keeps a lock on a majority of independent Redis
// servers. The Redis manual calls the algorithm Redlock.
//
// It is here to be compared with the others. The reasons against it:
//
//   - It has no fence, so nothing stops a holder that was paused beyond its TTL. A number
//     that grows from grant to grant needs an agreement of the servers, which they do not
//     have. A resource that takes a number of its own (below) is correct without Redlock.
//   - A server that restarts without its last writes votes again, for a second holder.
//     The same holds for one whose wall clock jumps ahead.
//   - If a second holder only costs work, one server does for a fifth of the requests:
//     package redislock, whose locks have a fence too. If a second holder must not happen,
//     use etcdlock or pglock, and check the fence where the work is written.
//
// Package lostupdate below this one shows both ways to two holders on five servers, the
// update that is lost in PostgreSQL, and the fence that stops it.
//
// # The question
//
// A lock on one Redis server is gone with that server, and a replica that takes over may
// not have it. Can clients keep a lock on several servers that know nothing of each
// other, and how long may a holder rely on it?
//
// # The invariant
//
// At any moment at most one lease of a key is within its Until, as long as each server
// keeps what it has acknowledged, and the clocks of the servers and of the holder run at
// rates that differ by less than a hundredth. What a holder does after its Until is not
// covered.
//
// With two majorities there is always a server that belongs to both. It grants the key to
// one owner at a time.
//
// # What is stored
//
// Each server has the key as a name, with the same owner, which is random for each
// acquisition, and the TTL:
//
//	redlock:report/2026-11   "R7FQ…"   expires
//
//	          SET name owner PX ttl NX                   renew.lua: still this owner,
//	┌──────┐  on all, granted by a majority  ┌──────┐ ────┐ on a majority
//	│ free │ ──────────────────────────────▶ │ held │     │ TTL restarts
//	└──────┘ ◀────────────────────────────── └──────┘ ◀───┘
//	          release.lua on all: DEL where
//	          the owner is the same; or expiry
//
// An acquisition has the five steps of the manual:
//
//  1. Take the time, on the monotonic clock.
//  2. Send SET to all servers at once, with a time-out that is small compared to the TTL.
//  3. Count: a majority must have granted the key, and the time that has elapsed must be less
//     than the validity.
//  4. The validity is the TTL less the elapsed time, less CLOCK_DRIFT: a hundredth of the
//     TTL + 2 ms. So it ends at step 1 + TTL - drift, which is Until.
//  5. If the key was not granted, release it on all servers, those that refused it included.
//
// Of several clients that ask at once each may get a few servers, and none a majority. Then
// all of them release, and locking.Acquire tries again after a random pause. Renewal
// counts like acquisition. The manual limits the number of renewals; Options.MaxHold of
// locking.Do limits their time.
//
// # What goes wrong, and what happens then
//
// For five servers:
//
//	what happens                        what the holder sees                what other clients see
//	two servers are down                nothing                             the same
//	three servers are down              an error that is not ErrBusy, at    the same
//	                                    once; a lease ends at its Until
//	a server is silent                  each request takes the time-out:    the same
//	                                    a tenth of the TTL, 250 ms at most
//	replies to acquire are lost         nothing, if three arrive; else      busy until the background
//	                                    ErrOutcomeUnknown                   has removed it, or the TTL
//	a duplicate of SET arrives after    nothing                             one vote less, for at most
//	the release                                                             one TTL
//	replies to release are lost         nothing, if three arrive; else      busy until the background
//	                                    ErrOutcomeUnknown                   has removed it, or the TTL
//	replies to renew are lost           nothing, if three arrive; else an   busy
//	                                    error: the old Until still holds
//	the holder pauses beyond the TTL    Until is past when it wakes; Renew  free: two holders, if the first
//	                                    and Release: ErrLost                writes before it looks
//	a server restarts without its data  nothing, while three servers have   its vote is free: two holders
//	                                    the lock; then Renew: ErrLost       at once, if the first had only
//	                                                                        three
//	… with appendonly yes and           nothing                             busy
//	appendfsync always
//	… and stays out for a TTL           nothing                             busy
//	a server's clock jumps ahead        the same as a restart without data  the same
//	a server's clock jumps back         nothing                             one vote less, for longer
//	eviction, or DEL by an operator     the same as a restart without data  the same
//	an even number of servers           nothing: the majority of six is     the same
//	                                    four, of five three
//	one server under two names          not detected                        two votes are lost at once
//
// So the package promises exclusion among holders that stop at Until, and that a dead
// holder's key is free within the TTL. It promises no fence, no order of waiters, and no
// leases of several keys.
//
// # If it must be Redlock
//
// Take the fence from the database that the work is written to, after the key was granted,
// and check it there:
//
//	lease granted
//	fence = SELECT nextval('fences')
//	UPDATE account SET fence = $fence WHERE id = $id AND fence <= $fence    before the read
//	… read, decide …
//	UPDATE account SET … WHERE id = $id AND fence = $fence                  the write
//
// A holder that paused is refused by the second statement, and one that paused before
// nextval refuses the others: either way no update is lost. That holds without any lock.
// Redlock then saves work, and one Redis server saves as much.
//
// # Sources
//
//   - Redis manual, "Distributed Locks with Redis": the algorithm, its safety argument, crash
//     recovery, extension, and the disclaimer: "You should implement fencing tokens".
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
