// Package wallet keeps money in MongoDB, on several servers, and asks a bonus service
// what a credit gets on top: no update is lost, and transactions that collide do not
// make the bonus service be asked twice.
//
// # The question
//
// A credit reads the wallet, asks a service on the other side of the network what
// bonus there is, and writes the sum of it all. Two of them meet. Without a
// transaction, one of them writes over the other: the update is lost. With one,
// MongoDB lets the second one do all its work, and refuses its write at the end
// (WriteConflict). WithTransaction then runs the whole callback again. The balance
// is right, and the bonus service has been asked twice. How is it asked once?
//
// What if the conflict came first? A statement that writes to the wallet is a
// lock: the second transaction is refused there, before it has read or asked
// anything. There is nothing to write yet, so it writes an id without a meaning
// that is new each time, since a write that changes nothing locks nothing:
//
//	findOneAndUpdate({_id: wallet}, {$set: {lockId: <new>}})   first in the transaction
//
// Six answers stand side by side, one file each: naive, txn, constant-lock,
// lock-late, lockid, inc. Strategies tells which are right. All of them decide and
// write alike (job.go, record.go); they differ in when they read, lock and ask.
//
//	the first statement decides which transaction works; the others have not begun
//
// # The invariant
//
//	M1      the sum of all balances is the sum of all openings and all entries, after every commit
//	M2      a credit has one entry of amount + bonus, a debit one of −amount, a payment two that sum up
//	        to nothing, a refusal none; a wallet's balance = its opening + its entries, and is never below 0
//	M3      no operation twice
//	M4      all members of the replica set agree, and nothing that was acknowledged is rolled back
//	M5      one key of one client, while it is kept = at most one effect, and one answer, byte for byte (I-ONCE in the report)
//	W-SIDE  without faults, and while no request comes to a time limit, no request asks the bonus service twice,
//	        and under lockid no operation is asked for twice;
//	        under every fault the bonus service applies an operation once, and its bonus is in a balance exactly if it was committed
//
// "Once" holds for collisions only. If a server dies after the call, the repetition
// at another server asks again, and no lock prevents that. So the bonus service gets the
// operation's id, which is made of client and key and the same in every attempt,
// and must apply it once. BonusRequest names the operation, the request and the attempt.
//
// # An operation
//
//	c1   check: amount, key                                 ErrInvalid, before anything is read
//	     read the wallets, which a majority has             ErrNotFound, ErrForbidden, ErrInvalid (currency), before anything is locked
//	     wait in the queue of each wallet, in id order      ErrBusy when the queue, or the client's share of it, is full
//	     ┌─────────────────────────────────── the callback, 1 to attemptsMax times
//	c2   │ (the transaction begins with its first statement)
//	c3   │ ForUpdate(lower id)    lock and read ──WriteConflict──► abort, a short pause, again
//	c4   │ ForUpdate(higher id)
//	     │ find the operation ──found──► replay, or idempotency.ErrKeyReused
//	     │ decide ──► ErrInvalid (it cannot hold that) · refused: insert the operation with the refusal
//	     │ ask the bonus service (credits)                  the only effect that is not in the transaction
//	c5   │ update each wallet, insert its entries, insert the operation with the answer
//	     └────────────────────────────────────────────
//	c6   commit at the primary, which gives the wallets free
//	     │ ──TransientTransactionError──► the callback again
//	     │ ──anything else──► unknown: again, with the same key
//	     take one of majorityMax places, leave the queues
//	     commit again, until a majority has it
//	     │ ──it is gone──► unknown: wait in the queues again, with the same key
//	     │ ──no time is left──► ErrOutcomeUnknown; what may be open of it at the server is ended
//	c7   answer
//
//	          ┌──────────┐ aborted, cut, killed
//	          │ running  │──────────────────────► nothing
//	          └──────────┘
//	      commit │  │  no answer    ┌─────────┐  run again with the same key:
//	             │  └──────────────►│ unknown │  it finds the operation, or holds the lock and does not
//	             ▼                  └─────────┘
//	          ┌──────────┐               │
//	          │  stored  │◄──────────────┘        the effect, or a refusal; replayed while the key is kept
//	          └──────────┘
//
// The run after an unknown commit decides because of the lock: while a transaction
// holds it, no other transaction on this wallet is open, the first one included.
// If it reads no operation then, there is none, and there will be none.
//
// A refusal is sent when the data that it rests on is majority-committed. Owner, currency and
// existence of a wallet never change, and are read with read concern majority before the queue.
// idempotency.ErrKeyReused and the decisions about the balance are sent after the transaction that
// read the data is majority-committed, though it stores nothing.
//
// An operation that had an effect stays: it is the ledger, and its _id is the key.
// A refusal is forgotten after a day (KeysKept, Purge): its key is then a new request.
//
// # The order
//
//	1  queues of this process    by wallet id, in byte order
//	2  wallets                   by id, in byte order: MongoDB's order of UUIDs too
//	3  the operation             its _id is made of client and key: MongoDB's own unique index is the idempotency
//
// No transaction waits in 2 and 3: MongoDB aborts the second, at once. That cannot
// deadlock, but two payments in opposite directions could abort each other for
// ever. With one order one of them gets through. Requests wait in 1, where the queue is
// fair: 32 writers of one wallet that retry with a backoff need seconds at p99, and
// throw work away (BenchmarkCredit).
//
// # Several processes
//
// The queue is of one process. Of several processes, the head of each queue contends
// for the wallet. It asks again after 5 to 10 ms (heldPause), since the driver's
// pause grows to half a second. A process that hands the wallet on within itself takes
// it again in a millisecond, so that the others would hardly ever get it. After a run
// of 50 ms (runShared), or of a second where no other process was seen (runAlone), it
// leaves the wallet alone for 15 ms (gap), in which each of the others asks once at
// least. A head that has lost a gap asks three times as often, so that it is before
// those that have just had the wallet. BenchmarkCredit_ThreeProcesses has the figures.
//
// The price: a hot wallet that one process has alone rests for 1.5 % of the time. A
// wallet that several want rests for some milliseconds between runs, and each process
// that waits sends about a hundred refused transactions a second, up to three hundred
// when it has lost a gap. None of this is needed for the balance to be right.
//
// # How much one wallet, or one client, may take
//
//	QueueMax       requests wait for a wallet in one process; at most a quarter of them are of one client
//	majorityMax    requests, of all wallets, wait for a majority after they left their queues; the next one waits in them.
//	               The connections above that (poolMax) are for reads and short statements
//	before both    requests for a wallet of another client are refused: they wait in no queue and lock nothing.
//	               In the queue of its payee a payment takes a place of its client's share
//
// # What may happen, and what then
//
//	C1   two lock the same wallet              the second is aborted at once, with the label, and run again: nothing was asked
//	C2   the primary goes before commit        transient: the callback runs on the new one; one effect
//	C3   … behind the commit, before its reply majority, and the driver's retry of the commit: one effect
//	C4   the commit stays unknown              run again with the same key, through the queue, else ErrOutcomeUnknown; never a refusal.
//	                                           Its transaction may be open at the server: killSessions ends it
//	C5   killed in the callback                the server aborts after transactionLifetimeLimitSeconds; until then ErrBusy
//	C6   stopped for longer than that          NoSuchTransaction, transient: run again; nothing is left of the first
//	C7   the client leaves                     before the commit: aborted; in it: it ends, bounded by the client's time-out
//	C8   an old primary answers reads          nothing that is stored rests on a read outside of the transaction
//	C9   rollback after a fail-over            majority is set here, not left to the connection string
//	C10  one key, twice at once                WriteConflict or DuplicateKey: returned, run again, replayed
//	C11  the callback runs several times       results leave by return value; the bonus service gets one operation's id
//	C12  the lock changes nothing              it would lock nothing: the id is new in each attempt (see constant-lock)
//	C13  A→B and B→A                           one order; backoff with jitter; bounded
//	C14  the majority is gone                  no commit is acknowledged: ErrBusy before it, ErrOutcomeUnknown in it
//	C15  an index is built, a collection made  aborted after 5 ms, transient; Migrate runs before there is traffic
//
// The last guard is the schema: balance ≥ 0. Each refusal is counted,
// GuardTripped, and is an error that matches none of those below: no retry helps.
// It does not notice a lost update.
//
// # What the caller gets
//
//	Reply, nil error           stored: the operation, or the refusal (ErrInsufficientFunds), as Encode put it
//	ErrInvalid, ErrNotFound,   not stored; it happens again if nothing changes
//	ErrForbidden
//	idempotency.ErrKeyReused   not stored; the key belongs to another request
//	ErrBusy                    this attempt did nothing (but may have asked the bonus service); the key is still open
//	ErrOutcomeUnknown          a commit was sent and could not be decided in time: unknown
//	ctx's error                this attempt did nothing; another with the same key may have
//
// After "unknown" and "still open" the client does the same: it sends the same key again.
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
