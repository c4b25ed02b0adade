// SPDX-License-Identifier: MIT

// Package locking defines locks between processes: what a lock can promise, what it
// cannot, and Do, the loop that keeps the promise. It does no I/O and imports no
// driver. Each sub-package named after a store adds one.
//
// # The question
//
// Two servers want to change the same resource, which a key names. A mutex in one
// server does not exclude the other, so both request the key from a third process, the
// store, which grants it to one of them: the holder. How long may it rely on the grant?
//
// # Exclusion, and why it has an end
//
// If its holder crashes, a lock without an expiry is held for ever. So the store
// grants a lease: the key, for a TTL. The TTL frees the key after a crash, but it
// weakens the exclusion. A holder may be paused (a stopped process, a garbage
// collection, a frozen machine), or its packet may be late. Then it acts after its
// TTL, when the store has already granted the key to the next holder. No TTL is long
// enough, and checking the clock does not help: the pause may come between the check
// and the write. Two rules follow:
//
//	a lease makes it rare that two holders act at once:  use it to be fast
//	only the resource itself can make it impossible:     guard it, to be right
//
// # The trust window
//
// Lease.Until is how long a lease may be trusted. It counts from the *sending* of
// the request that last set the TTL at the server, on the monotonic clock:
//
//	client   |-- request -->                              Until
//	         sent           |<-- answer --|                 |
//	         |<------------ TTL - margin -------------------|
//	server                  |<--------------- TTL --------------------->|
//	                        granted                              expired
//
// The server starts its TTL later than the client, so the client's trust ends before
// the lease expires at the server, however slow the answer was. Each store sets its own
// margin, for clocks that run at different rates. A change of the wall clock has no
// effect. The monotonic clock stands still while the machine is suspended: a suspension
// is one more pause, and the guard has to refuse the write that follows it.
//
// # The life of a lease in Do
//
//	+---------+   granted    +------+          fn returned            +------+
//	| waiting |------------->| held |-------------------------------->| over |---> released, on a ctx
//	+---------+              +------+                                 +------+     of its own; or left
//	 |  ^   | busy: back off  |  ^   | renewed: again TTL/3 later        ^         to expire, after
//	 |  +---+ and retry       |  +---+ failed: again TTL/12 later        |         ErrOutcomeUnknown
//	 |                        |                                          |
//	 | ctx ended, MaxWait,    | refused, or Until is past, or MaxHold    |
//	 v or the store failed    v                                          |
//	error                    +------+ fn's ctx is cancelled: ErrLost     |
//	                         | lost |------------------------------------+
//	                         +------+          fn returned
//
// Invariant: while this process runs and fn's ctx has not ended, the lease has not expired
// at the server. (After a pause the process needs a moment to end the ctx.) This holds for
// a store that keeps what it has granted; a store that fails over to a replica may lose it.
// A lost lease is never renewed: a renewal that took a key which had become free would hide from
// the holder that another process may have held the key in between.
//
// # What goes wrong, and what happens then
//
//	the keys stay busy              ErrBusy, after MaxWait or when ctx ends; then the error matches ctx.Err() too
//	the store does not answer       the store's own error, once it stops retrying; never taken for a grant or for busy
//	the answer to a grant is lost   the Store retries as the same owner, or removes what the request took
//	the grant comes after Until     fn does not run, ErrLost
//	a renewal fails, or is silent   it is retried while the lease is trusted; each attempt takes a third of the TTL at most
//	a renewal is slow               its trust counts from the sending; it is cancelled when the present trust ends
//	a renewal is refused            lost, finally
//	no renewal until Until          lost
//	the process is paused           on waking: lost, even if an answer that extends the lease is waiting
//	Do inside Do for the same key   ErrNested, at once, if the Store is the same one
//	fn hangs                        after MaxHold its ctx ends and the renewals stop; the keys are free within a TTL
//	… with MaxHold: NoLimit         the keys stay taken as long as the process lives
//	fn ignores its ctx              Do waits for it; the guard refuses what it writes
//	fn succeeds after the loss      nil: what is committed is not reported as failed
//	fn fails after the loss         its error and ErrLost, both
//	fn panics, or calls Goexit      released, and the panic continues
//	the caller leaves               fn's ctx ends; the lease is renewed until fn has returned
//	a write has no answer           ErrOutcomeUnknown: not released; the keys stay taken until the TTL has passed
//	… under a lease without a TTL   released: nothing else would free the keys
//	the release fails               fn's result all the same; the TTL frees the keys
//
// # Writes
//
// A ctx that ends does not stop a statement at the server. It only keeps the result from
// the client. So a write begins only while the lease is trusted, and once begun it is
// not interrupted when the client leaves or the lease is lost:
//
//	err := locking.Do(ctx, store, locking.Options{}, keys, func(ctx context.Context, l locking.Lease) error {
//		return pglock.BeginFunc(ctx, pool, func(tx pgx.Tx) error { … read, decide, write, on ctx … })
//	}) // or Commit, with a write that classifies its errors
//
// # The fence, and the guard
//
// Each grant has a Fence, a number greater than all before it. The holder sends
// it along with its write, and the resource refuses a fence that is older than the
// greatest it has seen (ErrStale):
//
//	UPDATE accounts SET fence = $2 … WHERE id = $1 AND fence <= $2
//
// This guard is the *first* statement that touches the protected row, before
// the read on which the decision rests. With a guard at the write alone an update can be
// lost: A reads 100, B reads 100, A writes with fence 5, B writes with fence 6.
// An equal fence passes: one holder may write several times. A fence is as durable as the
// store's counter: if the counter may be lost with the store's data, its fences must not
// guard a resource that outlives that data.
//
// Where the resource is a database that can lock a row, SELECT … FOR UPDATE is
// the guard, and needs no fence: the database ends the lock with the holder's transaction.
//
// # Which lock when
//
//	everything is in one database            its row lock; an advisory lock, where there is no row yet
//	… and the work outlasts a transaction    a lease in a table there, with its fence checked by the resource
//	… and the row is hot                     a lease in front, so that waiters do not queue in the database
//	two holders at once only waste work      Redis, one key with a TTL
//	two holders at once do harm              etcd or ZooKeeper, with the fence checked by the resource
//	one machine                              a file lock
//	N independent Redis servers ("Redlock")  no: a paused holder breaks it like any lease, and it has no fence
//
// # Sources
//
//   - C. Gray and D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for
//     Distributed File Cache Consistency", SOSP 1989: the lease, and that its holder
//     has to count from before the grant.
//   - M. Kleppmann, "How to do distributed locking", 2016: the pause, the fencing
//     token, efficiency against correctness.
//   - antirez, "Is Redlock safe?", 2016 (antirez.com/news/101): the reply to Kleppmann,
//     which asks whether a resource that checks a token still needs the lock.
//   - Redis, "Distributed Locks with Redis": SET NX PX, the random owner, release by
//     compare and delete, validity from before the request, a limit to reacquisition.
//   - etcd, "etcd versus other key-value stores" (Documentation/learning/why.md), notes
//     on the usage of lock and lease: validate a version number at the resource.
//   - River (github.com/riverqueue/river, internal/leadership): the trust window, and a
//     resignation that outlives the ctx.
package locking
