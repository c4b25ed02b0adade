// Package etcdlock keeps locks in etcd: one queue for each key, one transaction
// to enter all the queues of a lease, a fence that outlives every restart.
//
// The question: several programs change what must never be changed twice, and
// the lock service itself may lose a machine. Which one is next, and how does the
// resource tell a late holder from the present one?
//
// The invariant: at any moment at most one lease of a key is within its Until,
// as long as clocks run at about the same rate. And, whatever the clocks do: of
// two grants of one key the later has the greater Fence. The first makes wasted
// work rare. The second makes the result right, if the
// resource checks the fence (package locking: the guard).
//
// # What is stored
//
//	lock/9:account/1/R7FQ…   create revision 8012   a waiter for account/1, or its holder
//	lock/9:account/1/K3ZA…   create revision 8015   the next one
//	lock/fenced:W4TT…                               the fencing key of an attempt without an answer
//	lock/epoch               value W5QK…            the epoch of the fences
//
// All but the epoch hang on one etcd lease, the session's, and are gone with it. Each
// attempt has names of its own, made with a nonce, so that a request that arrives late
// cannot be taken for another one.
//
// # Where to find what
//
//	client.go     New, and the client's settings
//	etcdlock.go   Store, Close
//	names.go      which keys are allowed, and their names in etcd
//	acquire.go    an attempt to get the keys
//	wait.go       a waiter and its predecessor
//	orphans.go    what becomes of an attempt that has failed
//	lease.go      a Lease: Renew, Release, its end
//	session.go    the session: keep-alive, and the next one
//	sessionend.go the end of a session
//	request.go    the bounds of a request, what an error says
//	epoch.go      the epoch of fences
//
// # Queues, and why they cannot deadlock
//
// One transaction puts a waiter under every wanted key. Its revision is a place
// in one total order over all queues, and it is the fence. The holder is the waiter
// that is the lowest in each of its queues: the oldest of all waiters always is, so
// one can always go on, in whatever order keys are named.
//
//	           Acquire: put under all keys                 lowest in all of them
//	┌─────────┐   one transaction    ┌─────────┐  watch the predecessor,  ┌──────┐
//	│ outside │─────────────────────▶│ waiting │─────────────────────────▶│ held │──┐ Renew: Until
//	└─────────┘                      └─────────┘  look again when it goes └──────┘◀─┘ moves on
//	     ▲  ▲    queues empty: held at once │ ctx ended, session lost         │
//	     │  └──────────────────────────────┘                                  │
//	     └─────────── Release, Until is past, session lost ───────────────────┘
//
// A waiter watches its predecessor alone, and looks at the queues again when that
// one is gone; the look also shows that its own names are still there. There is
// no gap between reading and watching: the watch says at which revision it
// begins, and if that is not the read's, the queues are read once more beside it.
//
// Of each process one waiter per key is in etcd, the others wait in a locking.Queue:
// a release wakes one process and not all. Every grant is a new waiter in etcd, at
// the end of the queue; so a process with many waiters has one turn in each round,
// like one with few. First come, first served holds in a process, and in etcd among
// the first of each process.
//
// TryAcquire enters only if all queues are empty, in the same one transaction: a
// refused one has left nothing behind.
//
// # Until, and the session
//
// A Store has one session, kept alive each third of the TTL. Until counts from
// the sending of the last keep-alive that was answered, less a hundredth of the
// TTL for clocks that run at different rates. Renew sends one of its own, and
// looks whether the keys are still there. A Lease that is not renewed is deleted
// at its Until by this process, although the session lives on: an abandoned one
// is not kept for ever.
//
//	      granted      an answer in time       TTL - margin without one, or etcd
//	┌──────┐  ┌───────┐────┐                   says that the lease is gone        ┌──────┐
//	│ none │─▶│ alive │    │─────────────────────────────────────────────────────▶│ dead │
//	└──────┘  └───────┘◀───┘                   or an orphan could not be removed  └──────┘
//	    ▲                                                                            │
//	    └──────── a new session; it never brings back what was under an old one ─────┘
//
// # Orphans: an attempt without an answer
//
// It may have put waiters that no caller waits for, or may do so yet, and they would
// stop their queues for as long as the session lives. So one transaction deletes the
// attempt's names *and* puts its fencing key: every attempt compares that its own is
// not there, so that a request which arrives after that is refused by etcd. Other
// attempts, Leases and waiters of the process are not touched. If the transaction is
// not confirmed within a third of the TTL, the session is given up: no keep-alive any
// more, a new session for what comes, and the lease is revoked as soon as the last
// Lease on it is released or past its Until (to revoke earlier would give keys away that
// a holder still trusts in). So the keys of an attempt without an answer are free after
// a third of the TTL, what one request takes, and one TTL, as long as no leader dies
// meanwhile: a new one gives every lease its TTL again.
//
// Waiters whose callers left, Leases that ran out, and releases without an answer
// leave orphans too. They are removed in the same way, without a fencing key: no
// request that puts them can be under way.
//
// An error is not always a refusal. etcd may apply a transaction for which it
// finds no space, and answer that there is none. The names of that attempt are
// deleted too, but it needs no fencing key: after an answer nothing arrives.
//
// # What each piece is for
//
// To give the session up after every unanswered request would need no fencing keys. But
// the Leases and waiters of all other callers in the process hang on that session, and
// a request is without an answer whenever its caller's ctx ends in the middle of it.
//
//	nonce            a late request belongs to no other attempt (TestAcquire_NoNameIsUsedAgain…)
//	… used again     etcd remembers deleted names until its next compaction, and walks over all of
//	                 them when a queue is read: a hot key would get slower (TestAcquire_AHotKeyKeepsItsNames).
//	                 Only the nonce of an answered release is used again.
//	fencing key      a request that arrives after it was undone does nothing (TestAcquire_RequestThatArrives…)
//	orphans          a ctx that ends leaves no waiter, without harm to others (TestAcquire_CtxThatEnds…)
//	session given up etcd that does not confirm a removal cannot keep keys for ever (TestSession_IsGivenUp…)
//	epoch            fences of a wiped etcd are not compared with older ones (TestEpoch_…)
//	queue            one waiter per process and key in etcd (BenchmarkHandoff, BenchmarkStarvation)
//
// # Space
//
// etcd keeps every revision until it is compacted. A cycle of Acquire and Release
// of two keys adds about 690 bytes, so that the default quota of 2 GiB is full after
// some three million of them, and etcd then takes no writes at all: ErrNoSpace. Start
// etcd with --auto-compaction-mode and --auto-compaction-retention. Any retention will
// do: nothing here needs an older revision than the present one, and a watch that
// would go on from a compacted revision ends, and the queue is read again.
//
// # The epoch of fences
//
// A fence is a revision, and revisions begin again when etcd is wiped, or go back
// when it is restored. Old and new numbers look alike, and the cluster's id does not
// tell them apart: an etcd started with the same flags has the same one. So there is a
// random value, made when the first Store opens and under no lease, and every
// transaction that acquires compares it. An epoch is the cluster's id and this
// value, and a grant is certainly of its Store's epoch:
//
//	                              cluster's id   value      a running Store    a new Store
//	wiped                         the same       none       ErrEpoch           begins a new epoch
//	restored as a new cluster     another        the same   ErrEpoch           has a new epoch
//	restored in place             the same       the same   grants, lower      has the old epoch
//	… and then NewEpoch           the same       another    ErrEpoch           has the new epoch
//
// A Store cannot detect the third line. The guard refuses the low numbers, and the
// operator that restored etcd calls NewEpoch. The resource keeps the epoch
// beside the fence, and refuses to compare fences of two of them.
//
// # What can go wrong
//
//	what happens                        what the holder sees                what others see
//	the reply to acquire is lost        undone, confirmed, made anew; or    busy until it is undone, at
//	                                    ErrOutcomeUnknown, undone later     most one TTL and a half
//	ctx ends while the request runs     ctx's error at once; undone in      the same
//	                                    the background
//	ctx ends in the queue               ctx's error and ErrBusy at once     the queue moves up
//	a request arrives very late         nothing: the fencing key refuses    nothing
//	                                    it
//	the reply to release is lost        ErrOutcomeUnknown; deleted in       busy until then, at most
//	                                    the background                      one TTL and a half
//	the holder pauses beyond the TTL    Until is over when it wakes; Renew  free after the TTL, then a
//	                                    and Release: ErrLost                greater fence
//	the lease is revoked by an operator Renew: ErrLost, up to a third of    free at once: two holders
//	                                    the TTL later                       until then
//	one lock is deleted by an operator  the same                            the same
//	the session is lost while waiting   waits on, at the queue's new end    the queue moves up
//	etcd elects a new leader            requests fail, and are made again;  busy; the new leader gives
//	                                    trust ends in time, or lasts        every lease its TTL again
//	no quorum, no etcd                  an error, at once after the first;  the same
//	                                    leases end at their Until
//	restart with the data               nothing, if within the TTL          busy, fences go on growing
//	a compaction while waiting          nothing: the queue is read again
//	etcd is full                        renews and releases as ever         ErrNoSpace, and nothing is left
//	                                                                        in the queues
//	wiped, restored as a new cluster,   ErrLost                             ErrEpoch, and nothing is left in
//	or given a new epoch                                                    the queues, until they restart
//	restored in place                   ErrLost, if it was granted later    fences go back: the guard refuses
//	                                                                        them, until an operator calls
//	                                                                        NewEpoch
//
// So it promises exclusion among holders that look at Until; that the keys of a
// dead process are free within TTL and half a second, plus as long again if a
// leader dies with it; order of arrival; several keys in one round trip; and a
// fence that is right whatever happens, short of an older snapshot.
//
// # The client
//
// Config gives what a client needs. etcd's client.KeepAlive and the sessions of
// its package concurrency are not used: they count trust from when an answer is
// read, which after a pause may be long after it came; and a lock taken twice
// under one session is one lock. etcd's client waits for its connection, so an
// etcd that refuses it looks like one that is silent.
//
// # Sources
//
//   - etcd client/v3/concurrency/mutex.go: the queue by create revision, and its
//     open ends: an attempt without an answer stays in the queue, TryLock enters
//     before it asks, two mutexes on one session share the lock.
//   - M. Burrows, "The Chubby lock service for loosely-coupled distributed
//     systems", OSDI 2006: sessions, and the sequencer that a fence is.
//   - etcd, "etcd versus other key-value stores", notes on the usage of lock and
//     lease: the resource has to validate the version number. etcd itself is not
//     enough: Jepsen, "etcd 3.4.3" (2020), lost 18 % of updates under its locks.
//   - P. Hunt, M. Konar, F. Junqueira, B. Reed, "ZooKeeper", USENIX ATC 2010: watch
//     the predecessor, and no herd wakes.
//   - etcd server/lease/lessor.go: a TTL is whole seconds, and raised to one and a
//     half elections; a new leader extends every lease.
package etcdlock
