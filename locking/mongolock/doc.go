// Package mongolock is what MongoDB can do for a lock: SELECT … FOR UPDATE by
// hand (ForUpdate), a lease in a document (Store), and the check of a lease's
// fence where the work is written (Guard).
//
// # The question
//
// MongoDB has transactions, and no statement that locks a document. Two
// transactions read a balance of 100, both work out what comes of it, both write.
// MongoDB lets one of them commit, and the other runs again from its beginning:
// the balance is right, but everything it did in between, such as a call to another
// service, has been done twice. How does a transaction learn of another one *before*
// its work, as with FOR UPDATE?
//
// # ForUpdate
//
// By a write that comes first, and changes nothing but a marker:
//
//	tx:  ForUpdate(ctx, wallets, id, &w)   {$set: {lockId: something new}}   ← first
//	     … work with w, as it was returned …
//	     UpdateOne(ctx, wallets, id, …)
//	     COMMIT
//
//	┌──────┐  ForUpdate: a new lockId    ┌──────┐   COMMIT     the work is written
//	│ free │ ──────────────────────────▶ │ ours │ ──────────▶
//	└──────┘ ◀────────────────────────── └──────┘   ABORT      as if never asked
//	          end of the transaction, or     │
//	          of its lifetime limit          │ another one: WriteConflict, at once;
//	                                         ▼ it runs again from its beginning
//
// Invariant: of all transactions that lock a document and commit, each has read
// what the one before left behind; and at any time at most one transaction holds
// the lock.
//
// No transaction waits here: the second one is refused, and has to try again. With
// many writers of one document that is slow (the driver's backoff), so let them queue
// before the transaction. ForUpdate prevents only the repetitions that conflicts
// cause. After a failed commit or a failed server the work runs again too: its
// requests to other services need a key under which each is done once.
//
// # The lease
//
// One document for each key, which stays for ever, since its fence must not begin anew:
//
//	{_id: "report/2026-11", fence: 7, owner: "R7FQ…", expires: ISODate(…)}   held
//	{_id: "report/2026-11", fence: 7}                                         free
//
//	          expires is past, or not there:                   still this owner and
//	┌──────┐  owner, fence + 1, expires         ┌──────┐ ────┐ this fence: expires anew
//	│ free │ ─────────────────────────────────▶ │ held │     │
//	└──────┘ ◀───────────────────────────────── └──────┘ ◀───┘
//	          Release, or the TTL
//
// Each arrow is one findAndModify of one document, hence atomic, and is decided by
// the server's clock ($$NOW). Asked twice by one owner it is one grant. It is
// acknowledged by a majority, with the journal on disk: what was granted is not
// rolled back.
//
// Invariant: at any moment at most one lease of a key is within its Until, as long
// as the clocks of the servers that become primary agree within the margin; and of
// two grants of one key the later has the greater Fence, as long as the document is
// there. The first makes it rare that two holders act at once; the second lets Guard refuse the late one.
//
// # The guard
//
// Guard keeps the greatest fence beside the resource, and refuses older ones. It also
// counts its passes: an update that changes nothing takes no lock in MongoDB. With the
// fence alone the holder of fence 5 could pass a second time, the holder of 6 pass and
// commit, and the first commit after that.
//
// # What goes wrong, and what happens then
//
//	ForUpdate and Guard
//	outside of a transaction               ErrNoTransaction: there is nothing that would hold the lock
//	no such document                       mongo.ErrNoDocuments; an upsert would lock a document that nothing refers to
//	another one has the document           WriteConflict at once, TransientTransactionError: WithTransaction
//	                                       runs the callback again, if the error is returned, wrapped with %w
//	a read came before                     the snapshot is older than the lock: WriteConflict if something
//	                                       changed since; so lock first, and use what the lock returned
//	two documents                          one order everywhere, as ForUpdateAll does: no wait, so no deadlock,
//	                                       but two could refuse each other in turn
//	the holder dies, or hangs              held until transactionLifetimeLimitSeconds (60 by default)
//	an old fence                           ErrStale; nothing of this transaction is to stay
//	the fences' epoch begins anew          ErrStale for ever: name the epoch in the resource
//
//	Store                               what the holder sees                what others see
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
//	a new primary is elected            ErrOutcomeUnknown until then; the   busy
//	                                    lease is there if it was granted
//	… whose clock is ahead              Renew: ErrLost, or nothing          free too early: two
//	                                    until its next Renew                holders until then
//	… whose clock is behind             nothing                             busy for longer
//	no majority                         ErrOutcomeUnknown                   the same
//	inside a transaction                ErrTransaction                      nothing
//	the document is deleted by hand     Renew: ErrLost                      free, and the fence
//	                                                                        begins anew: never do it
//	a collation that ignores case       keys that differ in case are one    the same
//
// It does not promise fairness, nor several keys in one lease: a document is what
// MongoDB changes in one step.
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
