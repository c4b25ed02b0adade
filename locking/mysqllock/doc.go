// SPDX-License-Identifier: MIT

// Package mysqllock implements locks with MySQL or MariaDB: a lease in a table (New), named locks of a
// session (GET_LOCK, NewSessions), and the check of a lease's fence in the transaction that
// writes (Guard).
//
// # The question
//
// A service has one database and no other store. Which of its locks fits a job, and until
// when may the holder rely on it?
//
//	the work is one transaction           SELECT … FOR UPDATE, of the row itself: no need of this package
//	the work is longer than a transaction New: expires, has a fence, works behind a proxy
//	… and must not end by a clock         NewSessions: ends with its connection, no fence
//	… and waiters must not poll           NewSessions: the server wakes them
//	an old holder must not overwrite      Guard, with the fence of New or of any other lock
//
// # The lease
//
// Each key has one row in the table locks, added by its first request:
//
//	name "report/2026-11", owner "R7FQ…", fence 1795256814078066, expires 12:00:06    held
//	name "report/2026-11", owner "",      fence 1795256814078066, expires 1970        free
//
//	          expires is past: owner,                          still this owner and
//	┌──────┐  a greater fence, expires           ┌──────┐ ────┐ this fence: a new
//	│ free │ ──────────────────────────────────▶ │ held │     │ expires
//	└──────┘ ◀────────────────────────────────── └──────┘ ◀───┘
//	          the release, or the TTL
//
// Each arrow is one statement, a transaction of its own: no row stays locked while a client is paused. For one free key that
// has a row, and for its release, it is an UPDATE. What this cannot decide, a second statement does: the call of a procedure
// of the migrations. It locks the rows in the order of their keys, compares with the server's clock, in UTC, and takes all
// keys or none, by a rollback. Two requests of one owner make one grant. Migrate keeps the procedures that there are: those
// of another version of this package must be dropped before.
//
// Invariant: at any moment at most one lease of a key is within its Until, as long as the
// server keeps what it has committed and its clock does not jump ahead; and of two grants of
// one key the later has the greater Fence. The fence is one more than those in the rows, which are locked
// meanwhile, or the clock in microseconds if that is greater: so it grows even if a row is deleted. The
// first makes it rare that two holders act at once; the second lets Guard refuse the late one.
//
// MySQL has no LISTEN: a waiter asks again, after 2 to 15 ms. Of the waiters in one process only the
// first does (locking.Line). A process that has seen another one lately leaves the key to it for 15 ms after each 20 ms, and otherwise after each 400. A refusal changes no
// row. What all stores need, such as the repetition of a request without an answer, is in package driver.
//
// # The session lock
//
// A lease of NewSessions is a named lock of a session, which has a connection of its own. Its
// Until is zero. Invariant: the server has at most one session with the lock of a key. That does not
// bind the holder: when its connection breaks, the lock is free at once, and the holder hears of it
// at the next Renew (locking.Do renews every second, and gives up after three without an answer). So
// what it protects needs a row lock as well.
//
// The waiters of one process for one key need one session, not one each: that which is first waits in the server, behind those
// of other processes, and the others behind it in this process (locking.Line).
//
// # Names
//
// The servers compare names more loosely than keys are compared. Their default collations take "a" and
// "A" for one text, and "e" and "é", MariaDB's also "a" and "a ", and any two emojis. GET_LOCK of MySQL ignores case,
// and refuses names of more than 64 characters, and names with a character of four bytes. That of
// MariaDB refuses more than 192 characters; its manual says that it ignores case, and 10.11 does not. So the
// columns of this package are bytes, and the name of a lock is Name, the SHA-256 of the key.
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
//	smaller than one that committed before it; and what a transaction reads
//	after its guard, if that was its first statement, does not change until its end
//
// The second part follows from the row lock that Guard's UPDATE takes. The row lock makes the check
// and the commit one step:
//
//	            fence is newer, or equal
//	┌─────────┐ ──────────────────────────► ┌──────────────┐ COMMIT   the fence is stored
//	│   not   │                             │ row is locked│────────►
//	│ guarded │ ◄────────────────────────── │ others wait  │ ROLLBACK no effect
//	└─────────┘   end of the transaction    └──────────────┘────────►
//	     │ fence is older
//	     └──► ErrStale: roll back
//
// With a guard at the write alone an update can be lost: A reads 100, B reads 100, A writes with
// fence 5, B writes with fence 6; both guards pass. At REPEATABLE READ, the default, any SELECT before
// the guard has the same effect, even of another table: it fixes the snapshot from which all later ones read.
//
// # Where to find what
//
// The package is longer than one lock, because it has a store of each kind, and the guard:
//
//	table.go    New: the lease in a table
//	session.go  NewSessions: GET_LOCK
//	guard.go    Guard
//	migrate.go  Migrate, and Migrations for another tool
//
// # What goes wrong, and what happens then
//
//	New                                 what the holder sees                what other clients see
//	the reply to acquire is lost        retried as the same owner, for      busy
//	                                    half the TTL: the same fence
//	no reply comes at all               ErrOutcomeUnknown after half the    busy for at most one
//	                                    TTL; removed in the background      TTL after that
//	KILL QUERY, a time limit of the     the same as a lost reply: it may    the same
//	server (max_statement_time)         have come after the commit
//	a duplicate of the request arrives  its later Renew: ErrLost, since     busy for at most
//	when the lease is over              the fence differs                   one TTL
//	the reply to release is lost        ErrOutcomeUnknown; retried in the   busy for at most one
//	                                    background                          TTL after a renewal
//	the reply to renew is lost          an error that is not ErrLost: the   busy
//	                                    old Until still holds
//	the holder pauses beyond the TTL    Until is past when it wakes; Renew  free, then a greater
//	                                    and Release: ErrLost                fence
//	the row is deleted by hand          Renew: ErrLost                      free, then a greater fence,
//	                                                                        if the clock was not set back
//	the server restarts                 errors until then; the lease stays  the same
//	… with less than                    Renew: ErrLost                      free: two holders; the
//	innodb_flush_log_at_trx_commit=1,                                       fence may be given twice
//	or a replica that lacks the last
//	commits takes over
//	the server's clock jumps ahead      Renew: ErrLost                      free too early: two holders
//	the server's clock jumps back       nothing                             busy for longer
//	binlog_format is STATEMENT          an error (1665): InnoDB needs ROW   the same
//	                                    or MIXED at READ COMMITTED
//	Galera, several primaries           an error (1213) when another node   the same
//	                                    was faster
//
//	NewSessions
//	GET_LOCK returns NULL               ErrNull: neither granted nor busy   the session ends
//	a reply to acquire or release is    ErrOutcomeUnknown; the session      free when the server has
//	lost                                ends                                noticed
//	a reply to renew is lost            an error that is not ErrLost        busy
//	the session is killed, the server   Renew, Release: ErrLost             free at once: two holders
//	restarts, wait_timeout is over                                          until the holder hears
//	a ctx ends while its request waits  the connection is closed            it leaves the queue within a second
//	in the server
//	the first waiter cannot connect     nothing                             those behind it in its process wait
//	                                                                        for as long: set timeout in the DSN
//	the holder's machine disappears     nothing                             busy until TCP keep-alive
//	                                                                        gives up
//	a proxy that gives each statement   the lock leaks, and the next        two holders, or busy until the
//	or transaction another session      client of that session has it too   proxy closes the session
//	the pool is too small               Renew fails; Do gives up after 3 s  no connection: an error, not busy
//	Galera, several primaries           nothing                             two holders: each node has
//	                                                                        locks of its own
//
//	Guard
//	an old holder is late                  ErrStale; its transaction is rolled back
//	… while the new holder's tx is open    its guard waits for that tx to end, then ErrStale
//	… and the new holder rolls back        its guard passes: no newer holder has written
//	one holder commits several times       an equal fence passes
//	two resources                          guard them in one order everywhere, or deadlock (1213)
//	a SELECT before the guard              the SELECTs after it are as old: an update can be lost. MariaDB with
//	                                       innodb_snapshot_isolation (the default from 11.6): an error (1020)
//	no row in guards                       ErrNoGuard
//	fence 0                                ErrUnfenced: the store cannot fence
//	the fences' epoch restarts             ErrStale for ever: put the epoch into the name of the resource
//
// In a process both stores grant in the order of arrival. New promises no order among processes: one
// may be granted several times as often as another. With NewSessions processes
// that have waiters alternate, whatever the number of their waiters.
//
// # The client
//
// The tests run on MariaDB 10.11, or on the server of SHOP_MYSQL_DSN. They have passed on MySQL 8.4.8 and 9.7.4 too;
// the test that restarts a server starts a MariaDB even then.
//
// Both stores work with any DSN of github.com/go-sql-driver/mysql. When a ctx ends, the driver closes the
// connection, and the server executes the statement to its end all the same. So a request whose ctx has
// ended has an unknown outcome, and is undone in the background; and a session whose lock was asked
// for in vain is never used again. What matters in the DSN:
//
//	readTimeout             0, or waiters of NewSessions give up after it
//	wait_timeout            for NewSessions: longer than a lease is held (the server's default: 8 hours)
//	checkConnLiveness       true, the default: Release notices a session that the server has ended
//	interpolateParams       saves Guard a round trip; the stores send no placeholders
//	clientFoundRows         makes no difference: Guard changes its row each time that it passes
//	multiStatements         not needed
//	SetConnMaxLifetime      does not end connections that are in use
//
// # Sources
//
//   - MySQL manual: 14.14 Locking Functions (names, NULL, the order of waiters); 17.7.2.4 Locking Reads;
//     17.7.2.3 Consistent Nonlocking Reads; INSERT … ON DUPLICATE KEY UPDATE; UTC_TIMESTAMP.
//   - MariaDB manual: GET_LOCK, innodb_snapshot_isolation; sql/mdl.cc: a waiter whose client has gone
//     leaves the queue at the next full second.
//   - github.com/go-sql-driver/mysql, issue 731: a cancelled ctx does not kill the query; README, DSN.
//   - ShedLock (github.com/lukas-krecan/ShedLock): a lock table with an owner and an expiry, and
//     usingDbTime, because the clocks of clients differ. It has no fence.
//   - M. Kleppmann, "How to do distributed locking", 2016: the fencing token, checked by the storage.
package mysqllock
