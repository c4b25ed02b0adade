// SPDX-License-Identifier: MIT

// Package transfer moves money between accounts in PostgreSQL. Several servers may do so at
// once. No transfer happens twice or in part, even if a server, PostgreSQL or etcd crashes,
// pauses or answers late.
//
// # The question
//
// A server holds the lock of two accounts, has checked the balance, and is about to
// write. Then it stops: a garbage collection, a frozen machine, a delayed packet. Its
// lease expires. The next server gets the lock, moves the same money, and finishes. Now
// the first server's write arrives. It was allowed when it was sent. What refuses it?
//
// The lock service cannot: the write does not pass through it. A check of the clock before
// the write cannot either: the server may stop after the check. The row can, if it stores
// the number of the newest holder that has written, and each write carries the number of
// its holder. That number is the fence. It grows with each grant of the lock.
//
// The package has nine strategies, one file each: naive, etcd-unfenced, etcd-fence-only,
// lease-id-fence, token-per-transfer, row, serializable, etcd-fenced, combined. Strategies reports which of them are safe.
// All share the code that checks and writes (move.go, due.go, holds.go, operation.go). They
// differ in whether the two accounts can still change between the read and the write.
// etcd-unfenced and etcd-fence-only differ only in the fence predicate (outside.go).
// Package pgtx runs the transaction: it retries, resolves a COMMIT without an answer, and
// stores the reply under the idempotency key. The default is etcd-fenced:
//
//	the lock makes it fast, the fence and the row make it right
//
// # The invariant
//
//	T1  after every commit, the sum of all balances is the sum of all openings
//	T2  a posted transfer has two entries whose sum is 0, every other transfer has none
//	T3  balance = opening + the account's entries, and balance ≥ held ≥ 0
//	T4  in the order of an account's versions, the fences of its entries never decrease
//	    while a client's key is kept, it has at most one effect, and one reply, byte for byte (I-ONCE)
//	    held = the sum of the account's reserved transfers; exactly one of Post, Void and Sweep ends a hold
//
// # The order of locks
//
// Transfer, Reserve, Post, Void and Sweep take their locks in this order, which rules out
// deadlocks:
//
//	1  the lock store's keys      both accounts in one acquisition, all or none
//	2  rows of accounts           by id, in byte order: PostgreSQL's order of uuid, and of [16]byte
//	3  the row of the transfer    Post, Void and Sweep only
//	4  the idempotency key        its INSERT waits for a transaction that inserts the same key
//
// (naive, serializable and lease-id-fence lock no row before they write, and so lock rows
// after the key. lease-id-fence also takes another lock in step 1, which is one of its
// mistakes.) A statement that waited for a lock keeps the snapshot with which it began,
// except for the row that it locked. So what a lock protects is read by the locking
// statement or by a later one. The lookups before step 1 take no lock. They can replay a
// reply or refuse a request, and decide nothing else.
//
// # A transfer
//
//	b1   check: amount, accounts, currency, key        ErrInvalid, before anything is locked
//	     look up the key and the owner of the payer's account
//	     └──► replay, idempotency.ErrKeyReused · another client's account: ErrForbidden, before any queue
//	b2–5 acquire both accounts; the lease has a fence
//	     ┌──────────────────────────────────────────── one message, on the caller's ctx
//	b6   │ BEGIN
//	b7   │ UPDATE accounts SET fence … WHERE fence <= … RETURNING …   (lower id: check, lock, read)
//	     │ UPDATE accounts SET fence … WHERE fence <= … RETURNING …   (higher id)
//	     └──► guard: ErrStale, EpochError · another client's account: ErrForbidden · insufficient funds: store the refusal
//	     ┌──────────────────────────────────────────── one message, detached
//	b8   │ INSERT the key with the reply
//	b9   │ UPDATE both accounts, INSERT the transfer, INSERT both entries
//	b10  │ COMMIT
//	     └──► no answer: retry with the same key · 40001, 40P01: retry
//	b11  release, detached
//	b12  reply
//
// If the first message is interrupted, nothing has changed. The second message, COMMIT
// included, runs on a ctx of its own with its own time limit: neither the client nor a lost
// lease can cancel it. So the two rows are locked for one round trip and one fsync. The key
// is inserted after the rows are locked: a retry after a COMMIT without an answer waits for
// the first attempt at the rows, before it inserts the same key. The batch of combined runs on the ctx of its lease: a
// client that leaves during it does not interrupt it. It looks up the keys after it has locked the rows.
//
// # A hold
//
//	              Post, in time       ┌─────────┐
//	          ┌──────────────────────►│ posted  │  settled ≤ amount has moved, the rest is available
//	┌──────────┐  Void, in time       ├─────────┤
//	│ reserved │─────────────────────►│ voided  │  all of it is available
//	└──────────┘  Sweep; a late Post  ├─────────┤
//	          └──────────────────────►│ expired │  all of it is available
//	              or Void; a payer    └─────────┘
//	              short of funds
//
// A hold changes once, while both account rows are locked. The statement names the state
// that it expects, and reads the clock after all lock waits:
// WHERE state = 'reserved' AND expires_at > clock_timestamp(). Money cannot be
// spent when the time of its hold is over, but when the state expired is committed; Account shows it as available before.
// Otherwise a Post that found its hold in time could find the money spent. A hold for which
// Post has replied ErrExpired is expired.
//
// # What may happen, and what then
//
//	B1   paused with the locks held, past the TTL   the rows have seen a newer fence: ErrStale, nothing is written
//	B2   paused after the guard                     the next holder waits at the row; idle_in_transaction_session_timeout
//	                                                unlocks it before the next holder's lock_timeout
//	B3   a packet arrives late                      as B1, even if its sender has gone
//	B4   killed at any step                         PostgreSQL rolls back, the lease expires; all or nothing
//	B5   killed after COMMIT                        the transfer stands; the same key replays it
//	B6   etcd's leader dies                         an error is never taken for a grant; a failed release changes no reply
//	B7   etcd's leader is paused, or grants twice   the lock may have two holders, the rows have one
//	B8   etcd loses its quorum                      no transfer begins: UnavailableError, at once; a holder of a lease may finish
//	B9   cut off from etcd alone                    trust in the lease ends by the process's own clock; a late write is B1
//	B10  cut off from PostgreSQL alone              every wait is bounded, by the process's own clock too: ErrBusy, and the
//	                                                locks are released; at COMMIT: ErrOutcomeUnknown
//	B11  an operator revokes the lease              as B1
//	B12  the reply to acquire is lost               the store removes the orphaned key, or the TTL does
//	B13  two requests of one server                 two acquisitions, which the store keeps apart
//	B14  X→Y and Y→X at the same moment             one order of locks; after 40P01 or 40001 the whole transaction runs again
//	B15  X→X, amount ≤ 0 or too large, no account   refused before any lock, or in the transaction; no effect
//	B16  etcd is wiped or restored                  EpochError until NewEpoch: the epoch is stored beside the fence
//	B17  PostgreSQL restarts                        before COMMIT: retried; during COMMIT: resolved by the same key
//	B18  one key: twice at once, repeated, changed  one effect; replayed; idempotency.ErrKeyReused; each client has its own keys
//	B19  a key "in progress" for ever               impossible: it is committed with its effect
//	B20  many transfers spend the same money        those that the balance covers succeed; the others are refused, or busy
//	B21  a server's clock jumps                     nothing depends on it: time is the database's, trust is monotonic
//
// The last guard is CHECK (balance >= held): if a lock is missing, the table still refuses
// an overdraft. Each such refusal is counted (GuardTripped). The CHECK does not detect a lost
// update; only the audit does (T3). A lost update is prevented by the row lock, by
// SERIALIZABLE, or by the fence at both the read and the write. The fence refuses late
// holders only.
//
// # What the caller gets
//
//	Reply, nil error             stored: the transfer, or the refusal (ErrInsufficientFunds, ErrExpired, ErrSettled), as Encode encodes it
//	ErrInvalid, ErrNotFound,     not stored; a repetition fails too unless something changes
//	ErrForbidden
//	idempotency.ErrKey,          not stored; the key is malformed, or belongs to another request
//	ErrKeyReused
//	ErrBusy (UnavailableError),  this attempt did nothing; the key is still open
//	ErrLost, ErrStale
//	ErrEpoch                     did nothing; an operator has to start a new epoch first
//	idempotency.ErrInProgress    another request with this key is running: unknown
//	ErrOutcomeUnknown            a COMMIT was sent and could not be resolved in time, or no synchronous standby has it: unknown
//	ctx's error                  this attempt did nothing; another with the same key may have
//
// After "unknown" and after "still open" the client sends the same key again.
//
// # Sources
//
//   - M. Kleppmann, How to do distributed locking: the late packet, the fencing token.
//   - etcd, Why etcd, Notes on the usage of lock and lease: "the lock APIs cannot be used as mutual
//     exclusion mechanism by themselves"; contrib/lock, whose example uses the lease id as the token.
//   - Jepsen, etcd 3.4.3: locks that lose updates; its bank workload: one read, one total.
//   - PostgreSQL manual, 13.2 Transaction Isolation, 13.3 Explicit Locking, 13.5 Serialization Failure Handling.
//   - TigerBeetle, two-phase transfers: pending, post, void, expire; post of a part.
//   - B. Leach, Implementing Stripe-like Idempotency Keys in Postgres.
package transfer
