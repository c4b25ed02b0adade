// SPDX-License-Identifier: MIT

// Package pgtx runs a PostgreSQL transaction that takes effect once for a
// (client, key), whatever breaks and however often the request is sent.
//
// # The question
//
// A transaction moves money or stock. The client leaves, the connection breaks,
// the server is killed, or the same request arrives at two servers at once. Which
// answer may the server give, and why does a retry not move the money again?
//
// # The invariant
//
// For each (client, key) at most one transaction commits an effect; its reply is
// committed with it in idempotency_keys, and every later request with this key
// gets these bytes. Answered means stored: a reply is returned only when the disk has it, and the synchronous standbys, if
// there are any (durable.go). An error that does not match locking.ErrOutcomeUnknown or
// idempotency.ErrInProgress means that nothing was committed.
//
// # How
//
//	reply, err := db.Do(ctx, request, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
//		accounts, err := pgtx.Select[account](ctx, tx, `SELECT id, balance FROM accounts WHERE id = $1 FOR UPDATE`, id)
//		if err != nil {
//			return idempotency.Reply{}, err
//		}
//		if len(accounts) == 0 || accounts[0].Balance < amount {
//			return pgtx.Refuse(idempotency.Reply{Status: 409, Body: tooLittle})
//		}
//		tx.Queue(`UPDATE accounts SET balance = balance - $2 WHERE id = $1`, id, amount)
//		return idempotency.Reply{Status: 201, Body: done}, nil
//	})
//
// Statements are pipelined. Queue and QueueRows only queue; Select and Flush send all
// queued statements in one round trip. Statements that the body leaves queued are sent
// together with the key and COMMIT. The transaction above takes two round trips, and
// holds its row lock from the first answer to the second:
//
//	1  BEGIN; SELECT … FOR UPDATE                       on the ctx of the request: cancelling it changes nothing
//	2  INSERT the key and reply; UPDATE …; COMMIT       on a ctx of its own: a cancelled COMMIT may still happen
//
// The INSERT of the key comes before the writes that the body left queued, because it
// may wait for another transaction with the same key. If that transaction commits, the
// unique index refuses the INSERT, which ends the whole batch, COMMIT included, and the
// stored reply is returned. A body that locks rows in the second round trip puts the
// key behind them (Tx.KeyHere).
//
// A refusal rolls back first and then stores the key alone, so that requests for a
// sold-out product do not hold its row lock for the time of an fsync.
//
// A body that calls repositories or generated code gives them Tx.Pgx, a pgx.Tx of the same transaction. Each of their statements
// is a round trip.
//
// RunAll does the same for several requests in one transaction: their keys are looked up after the rows are locked, and
// inserted together, in byte order.
//
// # What can fail
//
// Do looks up the key (Lookup), and calls Run if the key has no reply yet. Run executes the transaction.
//
//	what                                     what Run does                                      the caller gets
//	serialization failure, deadlock          retries the whole transaction, body included       the reply; ErrBusy after 20 attempts
//	CHECK constraint of Config.Guards        the same: the decision was made on old data        the reply; ErrBusy
//	connection lost before COMMIT was sent   the same                                           the reply; ErrBusy
//	row, key, or connection not free         nothing: the server's and the pool's time limits   ErrBusy; for the key ErrInProgress
//	the server is out of memory or disk      nothing                                            ErrBusy
//	a session is refused, or is read-only;   nothing; after a second the pool replaces a        ErrBusy
//	a privilege is missing                   read-only session
//	a table was altered since its statement  prepares it anew and retries                       the reply
//	was prepared
//	pgx cannot encode a value                nothing was sent, COMMIT neither                   the error of pgx
//	the request's ctx ends before COMMIT     rolls back                                         the cause of ctx
//	the request's ctx ends after COMMIT      continues: COMMIT cannot be cancelled              the reply
//	the lease of the ctx (locking.Do) lost   rolls back, if COMMIT was not sent                 locking.ErrLost
//	COMMIT answered ROLLBACK                 retries the transaction                            the reply
//	COMMIT not answered, or with a WARNING   retries the transaction, under the same key        the reply, or ErrOutcomeUnknown
//	the reply is committed, and no           waits for the standby, at most CommitTimeout       the reply, or ErrOutcomeUnknown
//	synchronous standby has it
//	the same; the Op has neither Key nor     nothing: a second run could take effect again      ErrOutcomeUnknown
//	Idempotent
//	PostgreSQL does not answer               ends after Config.Limit; COMMIT: CommitTimeout     ErrBusy, or ErrOutcomeUnknown
//	the process is killed                    PostgreSQL rolls back, or has committed            a retry gets the effect, once
//	the key was used for another request     nothing                                            ErrKeyReused
//
// The outcome of a COMMIT without an answer is decided by a second transaction, never by
// a lookup alone. A lookup that finds the key is conclusive once the synchronous standbys have what it found, if
// synchronous_standby_names is set. A lookup that does not find
// it proves nothing: the COMMIT may still be under way. But a second transaction inserts
// the same key, so it waits for the first one, conflicts with it, or commits in its place.
//
// # What it does not promise
//
// A body may run several times, and one of its runs may be rolled back after it
// returned. It must not do I/O of its own: a message to another service must be sent
// after Run, or be an outbox row. Purge deletes old keys: a key that is sent again
// after that is a new request.
//
// # One table
//
// All packages of one database share idempotency_keys. A client that sends one key to
// two operations by mistake gets ErrKeyReused from the second, because the fingerprint
// includes the operation. With a table for each package, both would happen.
//
// Sources: PostgreSQL manual, 13.5 Serialization Failure Handling, and Message Flow:
// Extended Query, Pipelining; B. Leach, "Implementing Stripe-like
// Idempotency Keys in Postgres" (2017); pgconn.SafeToRetry.
package pgtx
