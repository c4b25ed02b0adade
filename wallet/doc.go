// SPDX-License-Identifier: MIT

// Package wallet keeps money in MongoDB. Several servers may change a wallet at once. A
// credit calls a bonus service, which returns what to add to the amount. No update is lost,
// and transactions that collide do not call the bonus service twice.
//
// # The question
//
// A credit reads the wallet, calls the bonus service over the network, and writes the sum.
// Two credits of one wallet meet. Without a transaction, one of them overwrites the other:
// an update is lost. With one, MongoDB lets the second transaction do all its work, and
// refuses its write at the end (WriteConflict). WithTransaction then runs the whole callback
// again. The balance is right, but the bonus service has been called twice. How is it called
// once?
//
// The conflict has to come first. A statement that writes to the wallet is a lock: MongoDB
// refuses it in the second transaction, before that has read or called anything. There is
// nothing to write yet, so the statement writes an id without a meaning. The id is new each
// time, because a write that changes nothing locks nothing:
//
//	findOneAndUpdate({_id: wallet}, {$set: {lockId: <new>}})   first in the transaction
//
// The package has seven strategies, one file each: naive, txn, constant-lock, lock-late, lockid,
// inc, combined. Strategies reports which of them are safe. All share the code that decides and writes
// (operation.go, record.go). They differ in when they read, lock and call the bonus service. The
// default is lockid:
//
//	the first statement refuses all transactions but one, before they have read or called anything
//
// # The invariant
//
//	M1      after every commit, the sum of all balances is the sum of all openings and all entries
//	M2      a credit has one entry of amount + bonus, a debit one of −amount, a payment two whose sum is 0,
//	        a refusal none; a wallet's balance = its opening + its entries, and is never below 0
//	M3      no operation is done twice
//	M4      all members of the replica set agree, and nothing that was acknowledged is rolled back
//	I-ONCE  while a client's key is kept, it has at most one effect, and one answer, byte for byte
//	W-SIDE  without faults, and while no request reaches a time limit, no request calls the bonus service twice,
//	        and under lockid and combined no two calls are for the same operation;
//	        under every fault the bonus service applies an operation once, and its bonus is in a balance exactly if it was committed
//
// The lock prevents a second call only where transactions collide. If a server dies after the call,
// the repetition at another server calls again, and no lock prevents that. So the call carries
// the operation's id, and the bonus service must apply an id once. The id is made of client
// and key, and is the same in every attempt. BonusRequest also has the request and the attempt.
//
// # An operation
//
//	c1   check: amount, key                                 ErrInvalid, before anything is read
//	     read the wallets with read concern majority        ErrNotFound, ErrForbidden, ErrInvalid (currency), before anything is locked
//	     wait in the queues of all its wallets              ErrBusy if a queue, or the client's share of it, is full
//	     ┌─────────────────────────────────── the callback, 1 to attemptsMax times
//	c2   │ (the transaction begins with its first statement)
//	c3   │ ForUpdate(lower id)    lock and read ──WriteConflict──► abort, a short pause, retry
//	c4   │ ForUpdate(higher id)
//	     │ find the operation ──found──► replay, or idempotency.ErrKeyReused
//	     │ decide ──► ErrInvalid (the wallet cannot hold the sum) · refused: insert the operation with the refusal
//	     │ call the bonus service (credits)                 the only effect outside of the transaction
//	c5   │ update each wallet, insert its entries, insert the operation with the answer
//	     └────────────────────────────────────────────
//	c6   commit at the primary, which unlocks the wallets
//	     │ ──TransientTransactionError──► run the callback again
//	     │ ──anything else──► unknown: run again with the same key
//	     take one of majorityMax places, leave the queues
//	     commit again, until a majority has it
//	     │ ──the transaction is gone──► unknown: wait in the queues again, run again with the same key
//	     │ ──no time is left──► ErrOutcomeUnknown; if the transaction may be open at the server, it is ended
//	c7   answer
//
//	          ┌──────────┐ aborted, cut, killed
//	          │ running  │──────────────────────► nothing
//	          └──────────┘
//	      commit │  │  no answer    ┌─────────┐  run again with the same key:
//	             │  └──────────────►│ unknown │  finds the operation, or holds the lock and finds none
//	             ▼                  └─────────┘
//	          ┌──────────┐               │
//	          │  stored  │◄──────────────┘        the effect, or a refusal; replayed while the key is kept
//	          └──────────┘
//
// The run after an unknown commit resolves it, because of the lock: while a transaction
// holds it, no other transaction on this wallet is open, the first one included. If the run
// finds no operation then, there is none, and there will be none.
//
// A refusal is sent after the data that it depends on is majority-committed. The owner, the
// currency and the existence of a wallet never change: they are read with read concern majority,
// before the queue. idempotency.ErrKeyReused and decisions about the balance are sent after a
// majority has the commit of the transaction that read the data, even if that stores nothing.
//
// An operation that had an effect is kept for ever: it is the ledger, and its _id is made of
// the key. A refusal is kept for a day (KeysKept, Purge): then its key is a new request.
//
// # The order
//
//	1  queues of this process    a request joins the queues of all its wallets in one step
//	2  wallets                   by id, in byte order: MongoDB's order of UUIDs too
//	3  the operation             its _id is made of client and key: MongoDB's own unique index is the idempotency
//
// No transaction waits in 2 and 3: MongoDB aborts the second one at once. That cannot
// deadlock, but two payments in opposite directions could abort each other for ever. With
// one order, one of them succeeds. Requests wait in 1, where the queue is fair. Without it,
// 32 writers of one wallet that retry with a backoff need seconds at p99, and repeat work
// (BenchmarkCredit).
//
// # Many operations in one transaction
//
// Under combined, the credits and debits of a wallet that wait in this process share a transaction: one lock, one lookup of
// all keys, all calls of the bonus service side by side, one update of the wallet, one commit. Each is decided alone, in
// the order of arrival. A batch has one place in the queue of its wallet, and is formed when it has its turn. combined.go
// says what is different from lockid, and what goes the way of lockid.
//
// # Several processes
//
// A queue belongs to one process. The heads of the queues of several processes contend for
// the wallet. A head that is refused retries after 5 to 10 ms (heldPause), because the driver's
// own pause grows to half a second. A process that passes the wallet on to its own next request
// takes it again within a millisecond, so that the others would hardly ever get it. Therefore
// it leaves the wallet alone for 15 ms (gap) after a run of 50 ms (runShared), or of a second
// while it has seen no other process. In a gap each other head retries at least once.
// A head that has missed a gap retries three times as often, to be ahead of those that have just
// had the wallet. BenchmarkCredit_ThreeProcesses has the figures.
//
// The price: a hot wallet that only one process uses is idle for 1.5 % of the time. A wallet
// that several use is idle for some milliseconds between runs. Each waiting process sends about
// a hundred transactions a second that are refused, and up to three hundred after it has missed
// a gap. None of this is needed for the balance to be right.
//
// # How much one wallet, or one client, may take
//
//	QueueMax       bounds the requests that wait for a wallet in one process; one client may have a quarter of them.
//	               Under combined it also bounds those that wait for a batch: all of them are the owner's
//	majorityMax    bounds the requests, of all wallets, that wait for a majority after they have left their queues;
//	               the others keep their turn. The connections beyond that (PoolMax) are for reads and short statements
//	before both    a request for another client's wallet is refused: it waits in no queue and locks nothing.
//	               In the queue of its payee, a payment counts towards the share of the client that pays
//
// # What may happen, and what then
//
//	C1   two lock the same wallet              the second is aborted at once, with the label, and retried: it has called nothing
//	C2   the primary fails before the commit   transient: the callback runs at the new primary; one effect
//	C3   … after the commit, before its reply  majority, and the driver's retry of the commit: one effect
//	C4   the commit stays unknown              run again with the same key, through the queue, else ErrOutcomeUnknown; never a refusal.
//	                                           Its transaction may be open at the server: killSessions ends it
//	C5   killed in the callback                the server aborts after transactionLifetimeLimitSeconds; until then ErrBusy
//	C6   stopped for longer than that          NoSuchTransaction, transient: run again; nothing of the first is stored
//	C7   the client leaves                     before the commit: aborted; during it: the commit goes on, bounded by ClientTimeout.
//	                                           under combined a queued request is taken out; one in a batch gets the answer of the batch
//	C8   a deposed primary answers reads       nothing that is stored depends on a read outside of the transaction
//	C9   rollback after a fail-over            majority is set here, not left to the connection string
//	C10  one key, twice at once                WriteConflict or DuplicateKey: returned, run again, replayed
//	C11  the callback runs several times       results are returned, not assigned; the bonus service gets the same operation id
//	C12  the lock's write changes nothing      it would lock nothing: the id is new in each attempt (see constant-lock)
//	C13  A→B and B→A                           one order of locks; backoff with jitter; bounded
//	C14  the majority is lost                  no commit is acknowledged: ErrBusy before the commit, ErrOutcomeUnknown in it
//	C15  an index or a collection is made      transactions are aborted after 5 ms, transient; Migrate runs before there is traffic
//
// The last guard is the schema: balance ≥ 0. Each of its refusals is counted (GuardTripped),
// and its error matches none of those below, because no retry helps. The schema does not
// detect a lost update.
//
// # What the caller gets
//
//	Reply, nil error           stored: the operation, or the refusal (ErrInsufficientFunds), as Encode encodes it
//	ErrInvalid, ErrNotFound,   not stored; a repetition fails too unless something changes
//	ErrForbidden
//	idempotency.ErrKey,        not stored; the key is malformed, or belongs to another request
//	ErrKeyReused
//	ErrBusy                    this attempt did nothing (but may have called the bonus service); the key is still open
//	ErrOutcomeUnknown          a commit was sent and could not be resolved in time: unknown
//	ctx's error                this attempt did nothing; another with the same key may have
//
// After "unknown" and after "still open" the client sends the same key again.
// ErrBusy and ErrOutcomeUnknown are those of package locking.
//
// # Sources
//
//   - MongoDB manual, Production Considerations: "In-progress Transactions and Write Conflicts", the lockId
//     example; its first version set a constant, SERVER-77616, DOCSP-36046.
//   - MongoDB manual, Drivers API, Transaction Error Handling: TransientTransactionError, UnknownTransactionCommitResult.
//   - MongoDB driver specifications, Transactions, Convenient API: what is retried, why commits are with majority.
//   - Jepsen, MongoDB 4.2.6: what the defaults of read and write concern do not promise.
//   - R. Riccio, How to SELECT … FOR UPDATE inside MongoDB transactions, MongoDB's blog.
package wallet
