// Package inventory sells stock to many buyers at once, on several servers, and
// never sells what is not there.
//
// # The question
//
// One piece is left and two buyers ask for it at the same moment, on different
// servers. Both read that it is there. Both take it. How is one of them stopped, at
// which price, and does that still hold when a server is killed, a client leaves, a
// connection breaks, or the lock service loses its data?
//
// Nine answers stand side by side, one file each: naive, redis-only, redis+row,
// row, atomic, optimistic, serializable, advisory, advisory-try. Strategies
// lists which are right. The default is redis+row, the double lock:
//
//	the lock makes it fast, the database makes it right
//
// All of them run in a transaction of package pgtx, which stores the reply under the
// idempotency key, bounds every wait, retries, and decides lost COMMITs. This
// package is what a purchase reads, decides and writes.
//
// # The invariant
//
//	stock = opening − sold + cancelled ≥ 0, for every product, after every commit
//	one key of one client, while it is kept = at most one effect, and one reply, byte for byte
//	an order has all its lines, or does not exist; what it gives back, it gives back once
//
// # The order of locks
//
// A transaction that takes several locks takes them in this order, so that none
// waits for another in a circle. This holds for the nine strategies, for Cancel, and for redis+row without Redis.
//
//	1  the lock store's keys            all or none, by sku
//	2  advisory locks                   by their number
//	3  rows of products                 by sku, in byte order: the order of Go strings and of COLLATE "C"
//	4  the row of the order             Cancel only
//	5  the idempotency key              its INSERT waits for a transaction that inserts the same
//
// A statement that waited for a lock still sees what it saw when it began, except
// for the row that it locked. So what a lock protects is read by the next statement.
// A look at the key before all this may replay a reply, and decides nothing else.
//
// # A purchase
//
//	      look at the key ──found──► replay, or ErrKeyReused
//	             │ not found: proves nothing
//	             ▼
//	┌──► lock, read the stock ──short──► store the refusal ─┐
//	│            │ enough                                   │
//	│            ▼                                          ▼
//	│    stock − q, key + reply, order, lines, movements; COMMIT
//	│            │                │                │
//	│            │ 40001, 40P01,  │ no answer:     │ answered
//	│            │ CHECK, lost    │ it may have    ▼
//	└────────────┴─── again ──────┘ happened     stored
//
// The first half runs on the caller's ctx: leaving changes nothing. The second
// half, COMMIT included, is one message on a ctx of its own, which neither the
// client nor a lost lease can end. A row is locked for one round trip and one fsync.
//
// # What may happen, and what then
//
//	A1   killed with the Redis lock held        the lock runs out with its TTL; nothing was written
//	A2   killed inside the transaction          PostgreSQL sees the socket close and rolls back
//	A3   killed after COMMIT                    the order stands; the same key replays it
//	A4   paused before BEGIN, past the TTL      whether or not the loss of the lease is known, the row lock serialises
//	A5   paused inside the transaction          idle_in_transaction_session_timeout frees the row before
//	                                            lock_timeout ends the requests that wait for it
//	A6   Redis fails over, the lock is gone     two holders meet at the row: one waits there
//	A7   two Redis masters                      the same
//	A8   Redis cannot be reached                redis+row goes on with the row lock alone, in at most half of
//	                                            the connections; redis-only sells nothing. An error is never a grant
//	A9   the key is deleted or expires early    as A6; Release does not touch the next holder's
//	A10  the reply to acquire is lost           the store asks again as the same owner
//	A11  a renewal fails                        retried while the lease can be trusted; then ErrLost before COMMIT
//	A12  the holder hangs, the watchdog renews  MaxHold ends it; redis+row goes on as in A8 after MaxWait, also
//	                                            where the key has no TTL at all. redis-only sells nothing
//	A13  PostgreSQL restarts before COMMIT      rolled back, run again
//	A14  PostgreSQL restarts during COMMIT      run again with the same key: it conflicts, or it is the first
//	A15  the connection is cut around COMMIT    the same
//	A16  the client leaves                      before COMMIT nothing happened; after it everything did
//	A17  many buyers, few pieces                as many orders as pieces, the rest is refused, stock is 0
//	A18  one key, twice at the same moment      the second INSERT waits, then replays; past lock_timeout ErrInProgress
//	A19  one key, another request               ErrKeyReused, no effect
//	A20  the same products in opposite orders   sorted before anything is locked; 40P01 is run again
//	A21  PostgreSQL falls silent                none of its own time-outs is heard: ErrBusy after pgtx.Limit,
//	                                            or unknown if a COMMIT was sent
//
// The last guard is CHECK (stock >= 0) under a relative write: should a lock be
// missing, the table refuses to sell the last piece twice. Each refusal is counted (GuardTripped).
//
// # What the caller gets
//
//	Reply, nil error          stored: the order, or the refusal (ErrOutOfStock, ErrAlreadyCancelled) as Encode put it
//	ErrInvalid, ErrNotFound   not stored; it happens again if nothing changes. So does idempotency.ErrKey
//	idempotency.ErrKeyReused  not stored; the key belongs to another request, of this package or of
//	                          another one: all of one database share the table of pgtx
//	ErrBusy, ErrLost          this attempt did nothing; the key is still open
//	idempotency.ErrInProgress another request with this key is at work: unknown
//	ErrOutcomeUnknown         a COMMIT was sent and could not be decided in time: unknown
//	ctx's error               this attempt did nothing; another with the same key may have
//
// After "unknown" and "still open" the client does the same: it sends the same key again.
//
// # Sources
//
//   - PostgreSQL manual, 13.2 Transaction Isolation, 13.3 Explicit Locking, 13.5 Serialization Failure Handling
//   - etcd, Why etcd, Notes on the usage of lock and lease: "the lock APIs cannot be used as mutual exclusion mechanism by themselves"
//   - Redis, Distributed Locks with Redis; M. Kleppmann, How to do distributed locking
//   - B. Leach, Implementing Stripe-like Idempotency Keys in Postgres
package inventory
