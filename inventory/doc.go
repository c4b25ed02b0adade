// SPDX-License-Identifier: MIT

// Package inventory sells stock to concurrent buyers, on several servers, and
// never sells more than there is.
//
// # The question
//
// One unit is left, and two buyers request it at the same moment, on different
// servers. Both read a stock of 1. Both take the unit. What stops one of them, at
// what cost, and does it still hold when a server is killed, a client disconnects, a
// connection breaks, or the lock service loses its data?
//
// The package has eleven answers, one file each: naive, redis-only, redis+row, combined,
// row, atomic, optimistic, serializable, advisory, advisory-try, slots. Strategies
// lists which are correct. The default is redis+row, the double lock:
//
//	the lock makes it fast, the database makes it right
//
// All strategies run in a transaction of package pgtx, which stores the reply under
// the idempotency key, bounds every wait, retries, and decides lost COMMITs. This
// package implements what a purchase reads, decides and writes.
//
// # The invariant
//
//	stock = opening − sold + cancelled ≥ 0, for every product, after every commit
//	one key of one client, while it is kept = at most one effect, and one reply, byte for byte
//	an order has all its lines, or does not exist; its stock is returned at most once
//	the units of one client in confirmed orders ≤ Product.ClientMax, if the product has such a limit
//
// # The order of locks
//
// A transaction that takes several locks takes them in this order, which prevents
// deadlocks. This holds for all strategies, for Cancel, and for redis+row without Redis.
//
//	1  the lock store's keys            all or none, by sku
//	2  advisory locks                   by their number
//	3  rows of products                 by sku, in byte order: the order of Go strings and of COLLATE "C". The rows of
//	                                    purchased, which count for a limit, are written under the row of their product
//	4  rows of stock_slots              one that is not locked, without waiting; or all, under the row of their product
//	5  the row of the order             Cancel only
//	6  the idempotency key              its INSERT waits for a transaction that inserts the same key
//
// A statement that waited for a lock still reads its snapshot from before the wait,
// except for the row that it locked. So the next statement reads what the lock protects.
// A lookup of the key before all this may replay a reply, and decides nothing else.
//
// # A purchase
//
//	      look up the key ──found──► replay, or ErrKeyReused
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
// The first half runs on the caller's ctx: a client that disconnects changes nothing. The batch of combined runs on the
// ctx of its lease, and looks up the keys after it has locked the row.
// The second half, COMMIT included, is one message on a detached ctx, which neither
// the client nor a lost lease can cancel. A row is locked for one round trip and one fsync.
//
// # Failures
//
//	A1   killed with the Redis lock held        the lock expires after its TTL; nothing was written
//	A2   killed inside the transaction          PostgreSQL sees the socket close and rolls back
//	A3   killed after COMMIT                    the order stands; the same key replays it
//	A4   paused before BEGIN, past the TTL      the row lock serialises, whether or not the loss is noticed
//	A5   paused inside the transaction          idle_in_transaction_session_timeout frees the row before
//	                                            lock_timeout fails the requests that wait for it
//	A6   Redis fails over, or has two masters   two holders meet at the row: one waits there
//	A7   Redis is unreachable                   redis+row and combined go on with the row lock alone, in at most half of
//	                                            the connections; redis-only sells nothing. An error is never a grant
//	A8   the key is deleted or expires early    as A6; Release does not touch the next holder's key
//	A9   the reply to acquire is lost           the store retries as the same owner
//	A10  a renewal fails                        retried while the lease can be trusted; then ErrLost before COMMIT
//	A11  the holder hangs, the watchdog renews  MaxHold ends it; after MaxWait redis+row goes on as in A7, even
//	                                            if the key has no TTL. redis-only sells nothing
//	A12  PostgreSQL restarts before COMMIT      rolled back, run again
//	A13  no answer to COMMIT: a restart, a cut  run again with the same key: it conflicts, or takes effect itself
//	A14  the client disconnects                 before COMMIT nothing happened; after it everything did.
//	                                            under combined a queued request is taken out; one in a batch gets the answer of the batch
//	A15  many buyers, few units                 as many units sold as there were; the rest is refused, stock is 0
//	A16  one key, twice at the same moment      the second INSERT waits, then replays; past lock_timeout ErrInProgress
//	A17  one key, another request               ErrKeyReused, no effect
//	A18  the same products in opposite orders   sorted before anything is locked; 40P01 is retried
//	A19  PostgreSQL stops answering             its own timeouts do not reach the client: ErrBusy after
//	                                            pgtx.Limit, or unknown if a COMMIT was sent
//	A20  all slots of a product are locked      not "sold out", since their buyers may roll back: slots waits for them
//
// The last line of defence is CHECK (stock >= 0), of slots CHECK (units >= 0), under a relative write: if a lock is
// missing, the table refuses to sell the last unit twice. Each refusal is counted (GuardTripped).
//
// # What the caller gets
//
//	Reply, nil error          stored: the order, or the refusal (ErrOutOfStock, ErrPurchaseLimit, ErrPriceChanged,
//	                          ErrAlreadyCancelled, ErrStockLimit), as encoded by Encode
//	ErrInvalid, ErrNotFound   not stored; a retry fails again if nothing changes. So does idempotency.ErrKey
//	idempotency.ErrKeyReused  not stored; the key belongs to another request, of this package or of
//	                          another one: all packages share the pgtx table of their database
//	ErrBusy, ErrLost          this attempt did nothing; the key is still open
//	idempotency.ErrInProgress another request with this key is in progress: unknown
//	ErrOutcomeUnknown         a COMMIT was sent and could not be decided in time, or no synchronous standby has it: unknown
//	ctx's error               this attempt did nothing; another with the same key may have
//
// After both "unknown" and "still open" the client retries with the same key.
//
// # Sources
//
//   - PostgreSQL manual, 13.2 Transaction Isolation, 13.3 Explicit Locking, 13.5 Serialization Failure Handling
//   - etcd, Why etcd, Notes on the usage of lock and lease: "the lock APIs cannot be used as mutual exclusion mechanism by themselves"
//   - Redis, Distributed Locks with Redis; M. Kleppmann, How to do distributed locking
//   - B. Leach, Implementing Stripe-like Idempotency Keys in Postgres
package inventory
