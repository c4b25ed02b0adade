// Package etcdlock keeps locks in etcd: one queue for each key, one transaction
// to enter all the queues of a lease, and a fence that outlives every restart.
//
// The question: several programs change data that must never be changed twice, and
// the lock service itself may lose a machine. Which program is next, and how does the
// resource distinguish a late holder from the present one?
//
// The invariant: at any moment at most one lease of a key is within its Until,
// as long as clocks run at about the same rate. And, whatever the clocks do: of
// two grants of one key the later has the greater Fence. The first makes wasted
// work rare. The second makes the result correct, if the resource checks the fence
// (package locking: the guard).
//
// # What is stored
//
//	lock/9:account/1/R7FQ…   create revision 8012   a waiter for account/1, or its holder, whose
//	                         mod revision 8012      fence is the mod revision
//	lock/9:account/1/K3ZA…   create revision 8015   the next one
//	lock/fenced:W4TT…                               the fencing key of an attempt without an answer
//	lock/epoch               value W5QK…            the epoch of the fences
//
// All of them except the epoch are attached to one etcd lease, the session's, and are
// deleted with it. Each attempt has names of its own, which end with a nonce, so that a
// request that arrives late cannot be taken for another one.
//
// # Where to find what
//
//	client.go     New, and the client's settings
//	etcdlock.go   Store, Close; which keys are allowed, and their names in etcd
//	acquire.go    an attempt to get the keys
//	wait.go       a waiter and its predecessor
//	rivals.go     the keys that other processes had, or waited for, lately
//	orphans.go    the cleanup after an attempt that has failed
//	lease.go      a Lease: Renew, Release, its end
//	pass.go       a release that passes the key to the next waiter of its process
//	session.go    the session, and its end
//	keepalive.go  the session's keep-alive, and the next session
//	request.go    the bounds of a request, the meaning of an error
//	epoch.go      the epoch of fences
//
// # Queues, and why they cannot deadlock
//
// One transaction puts a waiter into the queue of every requested key. Its revision is a
// position in one total order over all queues, and is also the fence of the grant. A waiter holds its
// keys when it is the first in each of its queues. The oldest waiter is always the first in
// all of its queues, so a deadlock is impossible, in whatever order keys are named.
//
//	           Acquire: put into all queues                first in all of them
//	┌─────────┐   one transaction    ┌─────────┐  watch the predecessor,  ┌──────┐
//	│ outside │─────────────────────▶│ waiting │─────────────────────────▶│ held │──┐ Renew: a
//	└─────────┘                      └─────────┘  read when it is deleted └──────┘◀─┘ later Until
//	     ▲  ▲    queues empty: held at once │ ctx ended, session lost         │
//	     │  └──────────────────────────────┘                                  │
//	     └─────────── Release, Until is past, session lost ───────────────────┘
//
// A waiter watches only its predecessor, and reads the queues again when the predecessor
// is deleted; the read also checks that its own names still exist. No event can be
// missed between the read and the watch: the watch reports the revision at which it
// starts, and if that is not the read's, the queues are read once more during the watch.
//
// Each process has one waiter per key in etcd, and its other waiters are in a
// locking.Queue: a release wakes one process and not all. If another process waits, the next grant takes a new waiter
// in etcd, at the end of the queue, so a process with many waiters has one turn in each
// round, like one with few. If none does, the release of one key passes it to the next waiter of its process: one transaction
// puts the holder's name again, and the revision of that is the next fence. The order of arrival holds within a process, and in etcd
// among the first waiters of the processes.
//
// TryAcquire enters only if all queues are empty, in the same single transaction: a
// refused request leaves nothing behind. Acquire tries that first, because a transaction
// that reads no queue is faster, unless another process was in one of the queues when
// this one last read them (rivals.go). So a key that another process has unexpectedly
// costs one transaction more, and the place in the queue is that of the second.
//
// # Until, and the session
//
// A Store has one session, and sends a keep-alive every third of the TTL. Until counts
// from the sending of the last keep-alive that was answered, less a hundredth of the
// TTL for clocks that run at different rates. Renew sends a keep-alive of its own, and
// checks that the keys still exist. A Lease that is not renewed is deleted by this
// process at its Until, although the session continues: an abandoned Lease is not kept
// for ever.
//
//	      granted      an answer in time       TTL - margin without one, or etcd
//	┌──────┐  ┌───────┐────┐                   reports that the lease is gone     ┌──────┐
//	│ none │─▶│ alive │    │─────────────────────────────────────────────────────▶│ dead │
//	└──────┘  └───────┘◀───┘                   or an orphan could not be removed  └──────┘
//	    ▲                                                                            │
//	    └──────── a new session; it never revives the Leases of an old one ──────────┘
//
// # Orphans: an attempt without an answer
//
// Its request may have put waiters for which no caller waits, or may still do so, and they
// would block their queues for as long as the session lives. So one transaction deletes
// the attempt's names *and* puts its fencing key. Every attempt requires that its own
// fencing key does not exist, so that etcd refuses a request that arrives later. Other
// attempts, Leases and waiters of the process are not affected.
//
// If the transaction is not confirmed within a third of the TTL, the session is
// abandoned: no keep-alive is sent for it, new work uses a new session, and the lease is
// revoked as soon as the last Lease on it is released or past its Until. (To revoke it
// earlier would free keys that a holder still trusts.) So the keys of an attempt
// without an answer are free after four thirds of the TTL and the duration of one
// request. If the leader dies in that time, it takes longer: a new leader gives every
// lease its TTL again.
//
// Waiters whose callers left, Leases that expired, and releases without an answer
// leave orphans too. They are removed in the same way, without a fencing key: no
// request that puts them can be under way.
//
// An error is not always a refusal. etcd may apply a transaction for which it
// finds no space, and answer that there is none. The names of that attempt are
// deleted too, but it needs no fencing key: after an answer nothing can arrive.
//
// # What each piece is for
//
// etcd's own Mutex is shorter: it has none of these pieces, does not bound a request, and locks one key only.
//
// Without fencing keys, every unanswered request would cost the session. But the Leases
// and waiters of all other callers in the process depend on that session, and every
// caller whose ctx ends during a request leaves it unanswered.
//
//	nonce              a late request belongs to no other attempt (TestAcquire_NoNameIsUsedAgain…)
//	nonce reuse        etcd keeps deleted names until its next compaction, and walks over all of
//	                   them when a queue is read: a hot key would get slower (TestAcquire_AHotKeyKeepsItsNames).
//	                   Only the nonce of an answered release is used again, and a grant is released once
//	                   (TestRelease_ASecondOne…).
//	fencing key        a request that arrives after it was undone does nothing (TestAcquire_RequestThatArrives…)
//	orphans            a ctx that ends leaves no waiter, and other callers lose nothing (TestAcquire_CtxThatEnds…)
//	session abandoned  an etcd that does not confirm a removal cannot keep keys for ever (TestSession_IsAbandoned…)
//	epoch              fences of a wiped etcd are not compared with older ones (TestEpoch_…)
//	queue              one waiter per process and key in etcd (BenchmarkHandoff, BenchmarkStarvation)
//
// # Space
//
// etcd keeps every revision until it is compacted. A cycle of Acquire and Release of
// two keys adds about 690 bytes, so the default quota of 2 GiB is full after some three
// million cycles. Then etcd accepts no writes at all: ErrNoSpace. Start etcd with
// --auto-compaction-mode and --auto-compaction-retention. Any retention will do: this
// package reads only the present revision. When compaction ends a watch, the queue is
// read again.
//
// # The epoch of fences
//
// A fence is a revision, and revisions restart when etcd is wiped, or go back when it is
// restored. Old and new numbers look alike, and the cluster's id does not distinguish
// them: an etcd started with the same flags has the same id. So the first Store creates
// a random value, under no lease, and every transaction that acquires compares it. An
// epoch is the cluster's id together with this value. A grant always belongs to the
// epoch of its Store:
//
//	                              cluster's id   value      a running Store    a new Store
//	wiped                         the same       none       ErrEpoch           starts a new epoch
//	restored as a new cluster     another        the same   ErrEpoch           has a new epoch
//	restored in place             the same       the same   grants, lower      has the old epoch
//	… and then NewEpoch           the same       another    ErrEpoch           has the new epoch
//
// A Store cannot detect the third case. The guard refuses the low numbers, and the
// operator that restored etcd calls NewEpoch. The resource stores the epoch with the
// fence, and refuses to compare fences of different epochs.
//
// # What can go wrong
//
//	what happens                        what the holder sees                what other clients see
//	the reply to acquire is lost        undone, confirmed, and retried; or  busy until it is undone, at
//	                                    ErrOutcomeUnknown, undone later     most one TTL and a half
//	ctx ends while the request runs     ctx's error at once; undone in      the same
//	                                    the background
//	ctx ends in the queue               ctx's error and ErrBusy at once     the queue moves up
//	a request arrives very late         nothing: the fencing key refuses    nothing
//	                                    it
//	the reply to release is lost        ErrOutcomeUnknown; deleted in       busy until then, at most
//	                                    the background                      one TTL and a half
//	a key is passed to a waiter that    nothing                             busy until it is deleted in the
//	has left                                                                background, or the waiter behind it
//	                                                                        has it
//	the holder pauses beyond the TTL    Until is past when it wakes; Renew  free after the TTL, then a
//	                                    and Release: ErrLost                greater fence
//	the lease is revoked by an operator Renew: ErrLost, up to a third of    free at once: two holders
//	                                    the TTL later                       until then
//	one lock is deleted by an operator  the same                            the same
//	the session is lost while waiting   waits again, at the queue's end     the queue moves up
//	etcd elects a new leader            requests fail and are retried;      busy; the new leader gives
//	                                    trust ends in time, or lasts        every lease its TTL again
//	no quorum, no etcd                  an error, at once after the first;  the same
//	                                    leases end at their Until
//	restart with the data               nothing, if within the TTL          busy; fences keep growing
//	a compaction while waiting          nothing: the queue is read again
//	etcd is full                        renews and releases as usual        ErrNoSpace, and nothing is left
//	                                                                        in the queues
//	wiped, restored as a new cluster,   ErrLost                             ErrEpoch, and nothing is left in
//	or given a new epoch                                                    the queues, until they restart
//	restored in place                   ErrLost, if it was granted later    fences go back: the guard refuses
//	                                                                        them, until an operator calls
//	                                                                        NewEpoch
//
// So the package promises exclusion among holders that respect Until; that the keys of
// a dead process are free within TTL and half a second (twice that time, if etcd's leader
// dies with it); order of arrival; several keys in one round trip; and a
// fence that always grows, unless etcd is restored from an older snapshot.
//
// # The client
//
// Config returns the settings that a client needs. This package does not use etcd's
// client.KeepAlive or the sessions of its package concurrency. They count trust from
// the time at which an answer is read. After a pause that may be long after its arrival.
// And a lock that is taken twice under one session is one lock: both callers have it.
// etcd's client waits for its connection, so an etcd that refuses connections looks like
// one that does not answer.
//
// # Sources
//
//   - etcd client/v3/concurrency/mutex.go: the queue by create revision, and its
//     defects: an attempt without an answer stays in the queue, TryLock enters the
//     queue before it checks, two mutexes on one session share the lock.
//   - M. Burrows, "The Chubby lock service for loosely-coupled distributed
//     systems", OSDI 2006: sessions, and the sequencer that a fence is.
//   - etcd, "etcd versus other key-value stores", notes on the usage of lock and
//     lease: the resource has to validate the version number.
//   - Jepsen, "etcd 3.4.3" (2020): without that check, 18 % of updates were lost under
//     etcd's locks.
//   - P. Hunt, M. Konar, F. Junqueira, B. Reed, "ZooKeeper", USENIX ATC 2010: each waiter
//     watches its predecessor, which prevents a thundering herd.
//   - etcd server/lease/lessor.go: a TTL is whole seconds, and raised to one and a
//     half elections; a new leader extends every lease.
package etcdlock
