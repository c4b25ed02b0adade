// Package locking is the idea of a lock between processes: what it can promise,
// what it cannot, and the loop that keeps the promise. It does no I/O and knows
// no driver; each sub-package named after a store brings one.
//
// # The question
//
// Two servers want to change the same thing. A mutex in one of them does not
// bind the other. So they ask a third, the store, which grants the key to one of
// them. How long may that holder rely on it?
//
// # Exclusion, and why it has an end
//
// A lock without an end is held for ever by a holder that crashed. So the store
// grants a lease: the key, for a TTL. That heals the crash, and breaks the
// exclusion. A holder that is paused (a stopped process, a garbage collection, a
// frozen machine), or whose packet is late, acts after its TTL as if it were
// before, and meanwhile the store has granted the key to the next one. No TTL is
// long enough, and no look at the clock helps: the pause may come between the
// look and the write. Two statements follow:
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
//	                        granted                              forgotten
//
// The server starts to count later than the client, whose trust thus ends before the
// server forgets, however slow the answer was. The margin, the store's, is for clocks
// that run at different rates. A change of the wall clock changes nothing. The
// monotonic clock stands still while the machine is suspended: that is one more pause,
// which the guard has to refuse.
//
// # The life of a lease in Do
//
//	+---------+   granted    +------+          fn returned            +------+
//	| waiting |------------->| held |-------------------------------->| over |---> released, on a ctx
//	+---------+              +------+                                 +------+     of its own; or left
//	 |  ^   | busy: back off  |  ^   | renewed: again TTL/3 later        ^         to run out, after
//	 |  +---+ and ask again   |  +---+ failed: again TTL/12 later        |         ErrOutcomeUnknown
//	 |                        |                                          |
//	 | ctx ended, MaxWait,    | refused, or Until is past, or MaxHold    |
//	 v or the store failed    v                                          |
//	error                    +------+ fn's ctx is cancelled: ErrLost     |
//	                         | lost |------------------------------------+
//	                         +------+          fn returned
//
// Invariant: while fn's ctx has not ended, the server had not forgotten the lease
// at the last moment at which this process ran. This holds for a store that keeps what
// it has granted; one that fails over to a replica may lose it. Nothing ever
// goes back from lost to held: a renewal that finds the key free, and takes it
// again, would hide that there was another holder in between.
//
// # What goes wrong, and what happens then
//
//	the keys stay busy              ErrBusy, after MaxWait or when ctx ends; the latter is in it too
//	the store does not answer       its own error, when it has stopped asking; never taken for a grant, nor for busy
//	the answer to a grant is lost   the Store asks again as the same owner, or removes its trace
//	the grant comes after Until     fn does not run, ErrLost
//	a renewal fails, or is silent   again, within the trust that is left; an attempt has a third of the TTL
//	a renewal is slow               counts from its sending, and never beyond the trust
//	a renewal is refused            lost, finally
//	no renewal until Until          lost
//	the process is paused           on waking: lost, also if an old answer is waiting that says otherwise
//	fn hangs                        after MaxHold the renewal ends, after the TTL the keys are free
//	fn ignores its ctx              Do waits for it; what it writes is stopped by the guard
//	fn succeeds after the loss      nil: what is committed is not reported as failed
//	fn fails after the loss         its error and ErrLost, both
//	fn panics, or calls Goexit      released, and the panic goes on
//	the caller leaves               fn's ctx ends; the renewal goes on until fn has returned
//	a write has no answer           ErrOutcomeUnknown: not released; the TTL keeps others out for a while
//	the release fails               nil all the same; the TTL frees the keys
//
// # Writes
//
// A ctx that ends does not stop a statement at the server. It only keeps its result from
// the client. So a write begins only while there is trust, and
// once begun it is not cut by a client that leaves or a lease that is lost:
//
//	err := locking.Do(ctx, store, locking.Options{}, keys, func(ctx context.Context, l locking.Lease) error {
//		… read, decide, on ctx …
//		return locking.Commit(ctx, time.Second, tx.Commit)
//	})
//
// # The fence, and the guard
//
// Each grant has a Fence, a number greater than all before it. The holder sends
// it along with its write, and the resource refuses a fence that is older than the
// greatest it has seen (ErrStale):
//
//	UPDATE accounts SET fence = $2 … WHERE id = $1 AND fence <= $2
//
// This guard is the *first* statement that touches the protected thing, before
// the read on which the decision rests. A guard at the write alone lets an update
// be lost: A reads 100, B reads 100, A writes with fence 5, B writes with fence 6.
// Equal passes: one holder may write several times. A fence is as durable as its
// counter: one that may be lost with the store's data must not
// guard a resource that outlives that data.
//
// Where the resource is a database that can lock a row, SELECT … FOR UPDATE is
// the guard, and needs no fence: the database ends the lock with the holder's transaction.
//
// # Which lock when
//
//	everything is in one database            its row lock; an advisory lock, where there is no row yet
//	… and the row is hot                     a lease in front, so that waiters do not queue in the database
//	work is only wasted when done twice      Redis, one key with a TTL; another holder at worst costs work
//	it must never happen twice               etcd or ZooKeeper, with the fence checked by the resource
//	one machine                              a file lock
//	N independent Redis servers ("Redlock")  no: a paused holder breaks it as any lease, and it has no fence
//
// # Where it comes from
//
//   - C. Gray and D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for
//     Distributed File Cache Consistency", SOSP 1989: the lease, and that its holder
//     has to count from before the grant.
//   - M. Kleppmann, "How to do distributed locking", 2016: the pause, the fencing
//     token, efficiency against correctness.
//   - antirez, "Is Redlock safe?", 2016 (antirez.com/news/101): the answer to it, which
//     asks whether a resource that checks a token still needs the lock.
//   - Redis, "Distributed Locks with Redis": SET NX PX, the random owner, release by
//     compare and delete, validity from before the request, a limit to reacquisition.
//   - etcd, "etcd versus other key-value stores" (Documentation/learning/why.md), notes
//     on the usage of lock and lease: validate a version number at the resource.
//   - River (github.com/riverqueue/river, internal/leadership): the trust window, and a
//     resignation that outlives the ctx.
package locking
