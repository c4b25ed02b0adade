// SPDX-License-Identifier: MIT

// Package pglock implements locks with PostgreSQL: a lease in a table (New), advisory locks of a
// session (NewSessions) and of a transaction (XactLock), a lock on a row that exists for
// nothing else (LockRow), and the check of a lease's fence in the transaction that writes (Guard).
//
// # The question
//
// A service has one database and no other store. Which of its locks fits a job, and until
// when may the holder rely on it?
//
//	the work is one transaction                 XactLock, TryXactLock, XactLockWithin: ends with the transaction
//	… on a row that does not exist yet          XactLockRow, or XactLock with a name
//	… and two names must never be one lock      LockRow: the name itself, but it needs a row
//	the work is longer than a transaction       New: expires, has a fence, works behind a pooler
//	… and is taken in a transaction that must   TryXactLease: a lease of New
//	not wait
//	… and its lock must not expire              NewSessions: ends with its connection, no fence
//	an old holder must not overwrite            Guard, with the fence of New or of any other lock
//
// # The lease
//
// Each key has one row in the table locks, added by its first request:
//
//	key "report/2026-11", owner "R7FQ…", fence 7, expires 12:00:06, awaited false    held
//	key "report/2026-11", owner "",      fence 7, expires -infinity                  free
//
//	          expires is past: owner,                          still this owner and
//	┌──────┐  the next fence, expires            ┌──────┐ ────┐ this fence: a new
//	│ free │ ──────────────────────────────────▶ │ held │     │ expires
//	└──────┘ ◀────────────────────────────────── └──────┘ ◀───┘
//	          the release, or the TTL
//
// Each arrow is one statement, a transaction of its own. For one free key that has a row, and for its release, it is an
// UPDATE. What this cannot decide, a second statement does: the call of a function of the migrations. It locks the rows in
// the order of their keys, compares with the server's clock_timestamp(), and takes all keys or none. Two requests of one
// owner make one grant.
//
// Invariant: at any moment at most one lease of a key is within its Until, as long as the
// server keeps what it has committed and its clock does not jump ahead; and of two grants of
// one key the later has the greater Fence. The fence is the next number of a sequence, taken
// while the rows are locked, so it grows even if a row is deleted. The first makes it rare
// that two holders act at once; the second lets Guard refuse the late one.
//
// A waiter marks the row (awaited). The release of a marked row sends NOTIFY. Each Store listens
// for it with one connection. A notification is a hint: the waiter tries again in any case, four times a second.
// A release without a waiter sends none, because transactions that notify commit one at a time.
//
// A grant is on disk, and on a synchronous standby, before its holder hears of it: a request whose wait for the standby
// ends by its time limit is sent again, and writes again. pg_cancel_backend ends the wait with a grant that only the
// primary has. A release does not wait for that: its transaction sets synchronous_commit to off. The next grant brings
// it to the disk, or the TTL ends the lease.
//
// # The session lock
//
// A lease of NewSessions is an advisory lock of a session, which has a connection of its own. Its
// Until is zero. Invariant: the server has at most one session with the lock of a key. That does not
// bind the holder: when its connection breaks, the lock is free at once, and the holder hears of it
// at the next Renew (locking.Do renews every second, and gives up after three without an answer). So
// what it protects needs a row lock as well.
//
// The waiters of one process for one key need one session, not one each: that which is first waits in PostgreSQL, behind those
// of other processes, and the others behind it in this process (locking.Line). A request that finds the key busy sends a
// second, which waits.
//
// # The guard
//
// Guard passes the fence to the transaction that writes, and stores the greatest fence of the
// resource:
//
//	tx:  Guard(ctx, tx, "account/7", lease.Fence)   ← first
//	     SELECT … what the decision needs …
//	     UPDATE … what was decided …
//	     COMMIT
//
// Invariant:
//
//	of the transactions that guard one resource and commit, none has a fence
//	smaller than one that committed before it; and what a transaction has read
//	after its guard does not change until its end
//
// The second part follows from the row lock that Guard's UPDATE takes, even if it writes
// the present value. The row lock makes the check and the commit one step:
//
//	            fence is newer, or equal
//	┌─────────┐ ──────────────────────────► ┌──────────────┐ COMMIT   the fence is stored
//	│   not   │                             │ row is locked│────────►
//	│ guarded │ ◄────────────────────────── │ others wait  │ ROLLBACK no effect
//	└─────────┘   end of the transaction    └──────────────┘────────►
//	     │ fence is older
//	     └──► ErrStale: roll back
//
// It comes first, before any read that the decision uses. With a guard at the write alone an
// update can be lost: A reads 100, B reads 100, A writes with fence 5, B writes with
// fence 6; both guards pass. If work between the read and the write leaves the
// transaction, guard before the read, and again at the write.
//
// # Where to find what
//
// The package is longer than one lock, because it has a store of each kind, the locks of a transaction, and the guard:
//
//	store.go              New: the lease in a table (package driver: what all stores need)
//	session.go            NewSessions: advisory locks of sessions
//	advisory.go, xact.go  the locks of the caller's transaction
//	guard.go              Guard
//	tx.go                 the caller's transaction
//	migrate.go            Migrate, and Migrations for another tool
//
// # What goes wrong, and what happens then
//
//	New                                 what the holder sees                what other clients see
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
//	a notification is lost              nothing                             a waiter waits 250 ms longer
//	a pooler in transaction mode        nothing                             waiters poll: LISTEN hears nothing
//	the row is deleted by hand          Renew: ErrLost                      free, then a greater fence
//	the server restarts                 errors until then; the lease stays  the same
//	… without a release of the last     nothing                             busy for at most one TTL
//	moments, which is not flushed
//	… with synchronous_commit off, or   Renew: ErrLost                      free: two holders; the
//	a replica that lacks the last                                           fence may be given twice
//	commits takes over
//	the server's clock jumps ahead      Renew: ErrLost                      free too early: two holders
//	the server's clock jumps back       nothing                             busy for longer
//	default_transaction_isolation is    an error (40001) when another       the same
//	above READ COMMITTED                request for the key was faster
//
//	NewSessions
//	a reply to acquire or release is    ErrOutcomeUnknown; the session      free when the server has
//	lost                                ends                                noticed
//	a reply to renew is lost            an error that is not ErrLost        busy
//	the session is terminated, the      Renew, Release: ErrLost             free at once: two holders
//	server restarts                                                         until the holder hears
//	idle_session_timeout is over        Renew, Release: ErrLost             the same: set it to 0 for the role or in the
//	                                                                        URL, since a held session sends nothing
//	the first waiter cannot connect     nothing                             those behind it in its process wait
//	                                                                        for as long: set connect_timeout
//	the holder's machine disappears     nothing                             busy until TCP keep-alive gives
//	                                                                        up: set tcp_keepalives_idle
//	the network drops idle connections  Renew: ErrLost once the server      the same
//	                                    has noticed
//	a pooler in transaction mode        the lock leaks, and the next        two holders, or busy until the
//	                                    client of that session has it too   pooler closes the session
//	the pool is too small               Renew fails; Do gives up after 3 s  no connection: an error, not busy
//	a hook of the pool discards what    an error (26000) once for each      free: the connection is closed
//	is prepared                         connection
//
//	locks of a transaction
//	outside of a transaction            ErrNoTx: the lock would end with its own statement
//	a rollback to an earlier savepoint  releases the lock
//	the statement that waited reads     its snapshot is older than the lock: read in the next one
//	two names                           lock them in one order everywhere, or deadlock (40P01)
//	two names with one Hash             one lock: of 100 million names two collide with probability 1 in 3,700
//	XactLockWithin: the time is over    ErrBusy; the transaction continues, with its own lock_timeout
//	XactLockWithin: a deadlock          40P01, not ErrBusy: the transaction has failed
//	TryXactLease: the reply is lost     the transaction ends with its connection: no lease
//	TryXactLease: the reply to COMMIT   call it again as the same owner: the lease keeps its fence, or is
//	is lost                             a new one
//	LockRow: another transaction has it ErrBusy (55P03); roll back, at least to a savepoint
//	a pooler in transaction mode        nothing: the transaction has one session. Statements must not be prepared
//	                                    (default_query_exec_mode=exec) if the pooler cannot track them
//	LockRow: no row                     ErrNoRow
//	MakeRow, then LockRow, in one       MakeRow waits for another transaction that has added the row
//	transaction                         and not ended: NOWAIT does not help
//
//	Guard
//	an old holder is late                  ErrStale; its transaction is rolled back
//	… while the new holder's tx is open    its guard waits for that tx to end, then ErrStale
//	… and the new holder rolls back        its guard passes: no newer holder has written
//	one holder commits several times       an equal fence passes
//	two resources                          guard them in one order everywhere, or deadlock (40P01)
//	REPEATABLE READ, SERIALIZABLE          a lost race is 40001 first; ErrStale when it runs again
//	Guard outside of a transaction         an error: its row lock would be gone before the write
//	fence 0                                an error: the store cannot fence
//	the fences' epoch restarts             ErrStale for ever: put the epoch into the name of the
//	                                       resource, or store it with the fence, as package transfer does
//
// In a process both stores grant in the order of arrival. New promises no order among processes. With NewSessions processes
// that have waiters alternate, whatever the number of their waiters.
//
// # Sources
//
//   - PostgreSQL manual: 13.3 Explicit Locking (advisory locks of a session and of a transaction,
//     NOWAIT); LISTEN, NOTIFY; lock_timeout; 9.9.5 clock_timestamp; INSERT … ON CONFLICT DO UPDATE,
//     "all rows will be locked when the ON CONFLICT DO UPDATE action is taken"; 13.2.1 Read Committed:
//     WHERE is evaluated again on the row's new version.
//   - ShedLock (github.com/lukas-krecan/ShedLock): a lock table with an owner and an expiry, and
//     usingDbTime, because the clocks of clients differ. It has no fence.
//   - cirello.io/pglock (github.com/cirello-io/pglock): leases in a table, with a heartbeat and a version
//     from a sequence that changes with each heartbeat. A waiter sleeps for a lease duration between tries.
//   - Recall.ai, "Postgres LISTEN/NOTIFY does not scale", 2025: a transaction that notifies holds
//     a lock of the whole server while it commits.
//   - M. Kleppmann, "How to do distributed locking", 2016: the fencing token, checked by the storage.
//   - etcd, "etcd versus other key-value stores": "the resources must provide the version number validation".
package pglock
