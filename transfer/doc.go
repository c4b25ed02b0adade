// Package transfer moves money between accounts, on several servers, never
// twice and never halfway, whatever dies, stops or is late meanwhile.
//
// # The question
//
// A server holds the lock of two accounts, has checked that the money is there,
// and is about to write. It stops: a garbage collection, a frozen machine, a
// packet that takes a detour. Its lease runs out, the next server gets the lock,
// moves the same money, and is done. Now the first server's write arrives. It was
// allowed when it was sent. What refuses it?
//
// Not the lock service: the write does not pass through it. Not a look at the clock before the
// write: the stop may come after the look. The row does, if it remembers the newest
// holder that has written, and each write says which holder sends it: the fence.
//
// Seven answers stand side by side, one file each: naive, etcd-unfenced,
// etcd-fence-only, lease-id-fence, row, serializable, etcd-fenced. Strategies says
// which are right. All of them check and write alike (move.go, due.go, holds.go,
// operation.go); they differ in what their reading of the two accounts is worth.
// etcd-unfenced and etcd-fence-only differ in the fence's predicate alone
// (outside.go). The transaction is that of package pgtx, which decides lost COMMITs,
// retries, and stores the reply under the idempotency key. The default is etcd-fenced:
//
//	the lock makes it fast, the fence and the row make it right
//
// # The invariant
//
//	T1  the sum of all balances is the sum of all openings, after every commit
//	T2  a posted transfer has two entries that sum up to nothing, every other transfer has none
//	T3  balance = opening + the account's entries, and balance ≥ held ≥ 0
//	T4  the fences of an account's entries never go down, in the order of its versions
//	T5  one key of one client, while it is kept = at most one effect, and one reply, byte for byte (I-ONCE in the report)
//	    held = the sum of the account's reserved transfers; of Post, Void and Sweep exactly one wins
//
// # The order of locks
//
// All strategies take their locks in this order, for Transfer, Reserve, Post, Void
// and Sweep alike, so that there is no circle of waiters:
//
//	1  the lock store's keys      both accounts in one acquisition, all or none
//	2  rows of accounts           by id, in byte order: PostgreSQL's order of uuid, and of [16]byte
//	3  the row of the transfer    Post, Void and Sweep only
//	4  the idempotency key        its INSERT waits for a transaction that inserts the same key
//
// (lease-id-fence takes another lock in step 1, which is one of its mistakes. naive and
// serializable lock no row before they write, and so lock rows after the key.) A
// statement that waited for a lock still sees what it saw when it began, but for
// the row that it locked, so that what a lock protects is read by that
// statement or a later one. A look at the key before all this may replay a
// reply, and decides nothing else.
//
// # A transfer
//
//	b1   check: amount, accounts, currency, key        ErrInvalid, before anything is locked
//	     look at the key and at the payer's owner
//	     └──► replay, idempotency.ErrKeyReused · not yours: ErrForbidden, before any queue
//	b2–5 acquire both accounts; the grant has a fence
//	     ┌──────────────────────────────────────────── one message, on the caller's ctx
//	b6   │ BEGIN
//	b8   │ UPDATE accounts SET fence … WHERE fence <= … RETURNING …   (lower id: check, lock, read)
//	     │ UPDATE accounts SET fence … WHERE fence <= … RETURNING …   (higher id)
//	     └──► refused: ErrStale, EpochError · not yours: ErrForbidden · short: store the refusal
//	     ┌──────────────────────────────────────────── one message, detached
//	b7   │ INSERT the key with the answer
//	b9   │ UPDATE both accounts, INSERT the transfer, INSERT both entries
//	b10  │ COMMIT
//	     └──► no answer: again with the same key · 40001, 40P01: again
//	b11  release, detached
//	b12  reply
//
// The first half changes nothing if it is cut. The second half, COMMIT included,
// runs on a ctx of its own, which neither the client nor a lost lease can cancel, with
// its own bound. So two rows are locked for one round trip and one fsync. The
// key comes behind the rows: a transaction that runs again after a COMMIT without
// answer meets the first attempt at its rows, before it inserts the same key.
//
// # A hold
//
//	              Post, in time       ┌─────────┐
//	          ┌──────────────────────►│ posted  │  settled ≤ amount moved, the rest is free
//	┌──────────┐  Void, in time       ├─────────┤
//	│ reserved │─────────────────────►│ voided  │  all of it is free
//	└──────────┘  Sweep; a late Post  ├─────────┤
//	          └──────────────────────►│ expired │  all of it is free
//	              or Void; a payer    └─────────┘
//	              that is short
//
// It changes once, under the rows of both accounts, by a statement that names the
// state it expects and reads the clock behind all waiting:
// WHERE state = 'reserved' AND expires_at > clock_timestamp(). That its time is over
// does not give the money back. A committed expired row does: otherwise a Post that
// found the hold in time could find its money spent. When a Post returns that the
// hold has expired, the hold is expired.
//
// # What may happen, and what then
//
//	B1   paused with the locks held, past the TTL   the rows have seen a newer fence: ErrStale, nothing is left
//	B2   paused behind the guard                    the next one waits at the row; idle_in_transaction_session_timeout
//	                                                frees it before the lock_timeout of the next one
//	B3   the packet is late                         the same as B1, also when its sender has gone
//	B4   killed at any step                         PostgreSQL rolls back, the lease runs out; all or nothing
//	B5   killed after COMMIT                        the transfer stands; the same key replays it
//	B6   etcd's leader dies                         an error is never a grant; a release that fails changes no answer
//	B7   etcd's leader is paused, or lies           the lock may have two holders, the rows have one
//	B8   etcd loses its quorum                      no transfer begins: UnavailableError, at once; a holder of a lease may finish
//	B9   cut off from etcd alone                    trust in the lease ends by our own clock; if late, as B1
//	B10  cut off from PostgreSQL alone              every wait is bounded, also by our own clock: ErrBusy, and the locks are released
//	B11  an operator revokes the lease              as B1
//	B12  the answer to acquire is lost              the store removes its trace, or the TTL does
//	B13  two requests of one server                 two acquisitions; the store keeps them apart
//	B14  X→Y and Y→X at the same moment             one order of locks; 40P01 and 40001 run the whole transaction again
//	B15  X→X, nothing, less, too much, no account   refused before any lock, or in the transaction; no effect
//	B16  etcd is wiped or restored                  EpochError until NewEpoch: the epoch is stored beside the fence
//	B17  PostgreSQL restarts                        before COMMIT: run again; in it: decided by the same key
//	B18  one key: at once, again, otherwise         one effect; replayed; idempotency.ErrKeyReused; each client has its own keys
//	B19  a key "in progress" for ever               cannot be: it is committed with its effect
//	B20  many spend the same money                  no more than it suffices for; the others are refused, or busy
//	B21  a server's clock jumps                     nothing is decided by it: time is the database's, trust is monotonic
//
// The last guard is CHECK (balance >= held): should a lock be missing,
// the table refuses an overdraft. Each refusal is counted (GuardTripped).
// It does not notice a lost update, which only the audit
// finds (T3). What prevents a lost update is the row lock, SERIALIZABLE, or the fence at
// the read and at the write, which refuses late holders only.
//
// # What the caller gets
//
//	Reply, nil error             stored: the transfer, or the refusal (ErrInsufficientFunds, ErrExpired, ErrSettled) as Encode put it
//	ErrInvalid, ErrNotFound,     not stored; it happens again if nothing changes
//	ErrForbidden
//	idempotency.ErrKey,          not stored; the key is unreadable, or belongs to another request
//	ErrKeyReused
//	ErrBusy (UnavailableError),  this attempt did nothing; the key is still open
//	ErrLost, ErrStale
//	ErrEpoch                     did nothing; an operator has to start a new epoch first
//	idempotency.ErrInProgress    another request with this key is running: unknown
//	ErrOutcomeUnknown            a COMMIT was sent and could not be decided in time: unknown
//	ctx's error                  this attempt did nothing; another with the same key may have
//
// After "unknown" and "still open" the client does the same: it sends the same key again.
//
// # Sources
//
//   - M. Kleppmann, How to do distributed locking: the late packet, the fencing token.
//   - etcd, Why etcd, Notes on the usage of lock and lease: "the lock APIs cannot be used as mutual
//     exclusion mechanism by themselves"; contrib/lock, whose example hands out the lease's id.
//   - Jepsen, etcd 3.4.3: locks that lose updates; its bank workload: one read, one total.
//   - PostgreSQL manual, 13.2 Transaction Isolation, 13.3 Explicit Locking, 13.5 Serialization Failure Handling.
//   - TigerBeetle, two-phase transfers: pending, post, void, expire; post of a part.
//   - B. Leach, Implementing Stripe-like Idempotency Keys in Postgres.
package transfer
