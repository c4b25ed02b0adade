// SPDX-License-Identifier: MIT

// Package mongolock implements locks with MongoDB: the equivalent of SELECT … FOR
// UPDATE (ForUpdate), a lease in a document (Store), and the check of a lease's fence
// in the transaction that writes (Guard).
//
// # The question
//
// MongoDB has transactions, but no statement that locks a document. Two transactions
// read a balance of 100, both compute a new balance, and both write. MongoDB lets one of
// them commit, and the driver runs the other again from its beginning. The balance is
// right, but everything that the second transaction did in between, such as a call to
// another service, has been done twice. How does a transaction detect another one
// *before* its work, as with FOR UPDATE?
//
// # ForUpdate
//
// By a write that comes first, and changes only a marker:
//
//	tx:  ForUpdate(ctx, wallets, id, &w)   {$set: {lockId: something new}}   ← first
//	     … use w as returned by ForUpdate …
//	     UpdateOne(ctx, wallets, id, …)
//	     COMMIT
//
//	┌──────┐  ForUpdate: a new lockId    ┌──────┐   COMMIT     the work is written
//	│ free │ ──────────────────────────▶ │ held │ ──────────▶
//	└──────┘ ◀────────────────────────── └──────┘   ABORT      no effect
//	          end of the transaction, or     │
//	          of its lifetime limit          │ another transaction: WriteConflict, at
//	                                         ▼ once; it runs again from its beginning
//
// Invariant: of all transactions that lock a document and commit, each has read
// the document as the one before left it; and at any time at most one transaction
// holds the lock.
//
// No transaction waits: the second one is refused, and has to retry. With many writers
// of one document that is slow (the driver's backoff), so let them queue before the
// transaction. ForUpdate prevents only the repetitions that conflicts cause. After a
// failed commit or a failed server the work runs again too, so each of its requests to
// other services needs an idempotency key.
//
// # The lease
//
// Each key has one document, which is never deleted, because its fence must not restart:
//
//	{_id: "report/2026-11", fence: 7, owner: "R7FQ…", expires: ISODate(…)}   held
//	{_id: "report/2026-11", fence: 7}                                         free
//
//	          expires is past, or missing:                     still this owner and
//	┌──────┐  owner, fence + 1, expires         ┌──────┐ ────┐ this fence: a new
//	│ free │ ─────────────────────────────────▶ │ held │     │ expires
//	└──────┘ ◀───────────────────────────────── └──────┘ ◀───┘
//	          Release, or the TTL
//
// Each arrow is one findAndModify of one document, hence atomic, and uses the server's
// clock ($$NOW). Two requests of one owner make one grant. A majority acknowledges it
// with the journal on disk, so a grant is not rolled back. A release may be: the primary
// alone acknowledges it, and the lease then ends by its TTL.
//
// Invariant: at any moment at most one lease of a key is within its Until, as long
// as the clocks of the servers that become primary agree within the margin; and of
// two grants of one key the later has the greater Fence, as long as the document is
// there. The first makes it rare that two holders act at once; the second lets Guard
// refuse the late one.
//
// MongoDB wakes no waiter. In each process the requests for a key wait in the order of arrival (locking.Line), and the first
// asks again after 2 to 15 ms. A process that has seen another one lately leaves the key to it for 15 ms after each 20 ms, and otherwise after each 400. What all
// stores need, such as the repetition of a request without an answer, is in package driver.
//
// # The guard
//
// Guard stores the greatest fence of a resource, and refuses older ones. It also
// increments a counter, because an update that changes nothing takes no lock in MongoDB.
// Without the counter, the holder of fence 5 could pass a second time, the holder of 6
// could pass and commit, and the first could still commit after that.
//
// # What goes wrong, and what happens then
//
//	ForUpdate and Guard
//	outside of a transaction               ErrNoTransaction: the lock would end with its own statement
//	no such document                       mongo.ErrNoDocuments; an upsert would lock a document that nothing refers to
//	another transaction has the document   WriteConflict at once, TransientTransactionError: WithTransaction
//	                                       runs the callback again, if the error is returned, wrapped with %w
//	a read came before                     the snapshot is older than the lock: WriteConflict if the document
//	                                       has changed since; so lock first, and use what the lock returned
//	two documents                          lock them in one order everywhere, as ForUpdateAll does: no
//	                                       transaction waits, so none deadlocks, but two could refuse each
//	                                       other in turn
//	the holder dies, or hangs              held until transactionLifetimeLimitSeconds (60 by default)
//	an old fence                           ErrStale; the transaction must be aborted
//	the fences' epoch restarts             ErrStale for ever: put the epoch into the name of the resource
//
//	Store                               what the holder sees                what other clients see
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
//	a new primary is elected            an error until then; the lease      busy
//	                                    exists if it was granted
//	… which lacks the last releases     nothing                             busy for at most one TTL
//	… whose clock is ahead              Renew: ErrLost, or nothing          free too early: two
//	                                    until its next Renew                holders until then
//	… whose clock is behind             nothing                             busy for longer
//	no majority                         ErrOutcomeUnknown; without a        the same
//	                                    primary an error: not sent
//	inside a transaction                ErrTransaction                      nothing
//	the document is deleted by hand     Renew: ErrLost                      free, and the fence
//	                                                                        restarts: never do it
//	a collation that ignores case       keys that differ in case are one    the same
//
// The Store promises neither fairness nor several keys in one lease: MongoDB changes
// one document in one step.
//
// # Sources
//
//   - R. Riccio, "How To SELECT ... FOR UPDATE Inside MongoDB Transactions", MongoDB blog: the write that
//     comes first. https://www.mongodb.com/blog/post/how-to-select--for-update-inside-mongodb-transactions
//   - SERVER-77616, and the manual, "Production Considerations for Transactions": an update that changes nothing
//     takes no lock; hence lockId: ObjectId(). The manual's own example had a constant there until then.
//   - MongoDB manual, "Aggregation Variables", NOW; "Write Concern", majority and j; "Retryable Writes".
//   - C. Gray and D. Cheriton, "Leases", SOSP 1989; M. Kleppmann, "How to do distributed locking", 2016.
package mongolock
