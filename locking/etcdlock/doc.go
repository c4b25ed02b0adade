// SPDX-License-Identifier: MIT

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
//	lock/9:account/1/694d7…31   create revision 8012   a waiter for account/1, or its holder, whose
//	                                                   fence is the create revision
//	lock/9:account/1/694d7…3f   create revision 8015   the next one
//	lock/epoch                  value W5QK…            the epoch of the fences
//
// A waiter has a lease of etcd, which no other has at that time, and its names end with the ID of that. When the lease ends,
// etcd deletes the names: a process that is dead, or does not renew, has nothing.
//
// # Where to find what
//
//	etcdlock.go   New, and the client's settings; the names in etcd
//	locks.go      the driver: take, keep, free; the leases of etcd
//	wait.go       a waiter and its predecessor
//	request.go    the meaning of an error
//	epoch.go      the epoch of fences
//
// What all stores have in common, such as lost answers and the line of a process, is in package driver.
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
//	     ▲  ▲    queues empty: held at once │ ctx ended, lease over           │
//	     │  └──────────────────────────────┘                                  │
//	     └─────────── Release, or the TTL is over ────────────────────────────┘
//
// A waiter watches only its predecessor, and reads the queues again when the predecessor
// is deleted; the read also checks that its own names still exist. No event can be
// missed between the read and the watch: the watch reports the revision at which it
// starts, and if that is not the read's, the queues are read once more during the watch. Every third of the TTL the waiter
// keeps its lease alive, and reads the queues too.
//
// Each process has one waiter per key in etcd, and its other waiters are in a
// locking.Line: a release wakes one process and not all. The next grant takes a new waiter
// at the end of the queue, so a process with many waiters has one turn in each
// round, like one with few. The order of arrival holds within a process, and in etcd
// among the first waiters of the processes.
//
// TryAcquire enters only if all queues are empty, in the same single transaction: a
// refused request leaves nothing behind.
//
// # Until, and the leases of etcd
//
// Until counts from the sending of the last request that has begun the TTL of the lease in etcd, and that etcd has answered, less
// a margin. Renew checks in one transaction that the keys still exist, and then keeps the lease alive.
//
// An answered release leaves a lease of etcd without keys. The Store keeps it for the next owner, which saves a request, if at
// least half of its TTL is left; otherwise that owner gets a new one. So a key costs two requests, and three at times.
//
// # An attempt without an answer
//
// Its request may have put waiters for which no caller waits, or may still do so. So its lease
// is revoked: etcd deletes what it has, and refuses a request that arrives later. Only then the
// Store tries again, with another lease. If the revocation is not answered either, the lease ends with its TTL: nothing keeps it
// alive. A waiter whose caller leaves is removed in the same way.
//
// A lease is used again only if all requests of its owner are answered. So no late request belongs to another owner, except a
// release: it compares the fence.
//
// An error is not always a refusal. etcd may apply a transaction for which it
// finds no space, and answer that there is none. The lease of that attempt is revoked too.
//
// # What each piece is for
//
// etcd's own Mutex is shorter: it has none of these pieces, does not bound a request, and locks one key only.
//
//	a lease for each owner  what an attempt has left ends, and harms no other (TestAcquire_CtxThatEnds…)
//	… that is used again    etcd keeps deleted names until its next compaction, and walks over all of
//	                        them when a queue is read: a hot key would get slower (TestAcquire_AHotKeyKeepsItsNames).
//	                        Only an answered release frees a lease, once (TestRelease_FreesItsLeaseOnce)
//	revocation              a request that arrives after it was undone does nothing (TestAcquire_RequestThatArrives…)
//	epoch                   fences of a wiped etcd are not compared with older ones (TestEpoch_…)
//	line                    one waiter per process and key in etcd (BenchmarkHandoff, BenchmarkStarvation)
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
//	                                    ErrOutcomeUnknown, undone later     most one TTL
//	ctx ends while the request runs     ctx's error at once; undone in      the same
//	                                    the background
//	ctx ends in the queue               ctx's error and ErrBusy at once     the queue moves up
//	a request arrives very late         nothing: its lease is gone          nothing
//	the reply to release is lost        ErrOutcomeUnknown; deleted in       busy until then, at most
//	                                    the background                      one TTL
//	the holder pauses beyond the TTL    Until is past when it wakes; Renew  free after the TTL, then a
//	                                    and Release: ErrLost                greater fence
//	the lease is revoked by an operator Renew: ErrLost                      free at once: two holders
//	                                                                        until then
//	one lock is deleted by an operator  the same                            the same
//	a waiter's lease ends               waits again, at the queue's end     the queue moves up
//	etcd elects a new leader            requests fail and are retried;      busy; the new leader gives
//	                                    trust ends in time, or lasts        every lease its TTL again
//	no quorum, no etcd                  errors; a waiter stays as long as   the same
//	                                    its lease, which ends at its Until
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
