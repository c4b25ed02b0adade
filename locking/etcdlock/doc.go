// Package etcdlock keeps locks in etcd: one queue for each key, one transaction
// to enter all the queues of a lease, a fence that outlives every restart.
//
// The question: several programs change what must never be changed twice, and
// the lock service itself may lose a machine. Who is next, and how does the
// resource tell a late holder from the present one?
//
// The invariant: at any moment at most one lease of a key is within its Until,
// as long as clocks run at about the same rate. And, whatever the clocks do: of
// two grants of one key the later has the greater Fence. The first makes work
// rare that has to be thrown away; the second is what makes it right, if the
// resource looks at it (package locking: the guard).
//
// # What is stored
//
//	lock/9:account/1/R7FQ…   create revision 8012   one who waits for, or holds, account/1
//	lock/9:account/1/K3ZA…   create revision 8015   the next one
//	lock/session:694d8c…     mod revision 8003      the session's gate, see below
//	lock/source              value W5QK…            whose fences these are, see below
//
// All but the source hang on one etcd lease, the session's, and are gone with it. Each
// attempt has names that no other has, so that nothing that arrives late can be taken
// for something else. Only what ended with an answered release leaves its names to
// a later attempt: etcd remembers deleted names until its next compaction, and walks
// over all of them when a queue is read, so that a hot key would get slower and slower.
//
// # Queues, and why they cannot deadlock
//
// One transaction puts a waiter under every wanted key. Its revision is a place
// in one total order over all queues, and it is the fence. Holder is who is the
// lowest in each of his queues: the oldest of all waiters always is, so someone
// can always go on, in whatever order keys are named.
//
//	           Acquire: put under all keys                 lowest in all of them
//	┌─────────┐   one transaction    ┌─────────┐  watch the predecessor,  ┌──────┐
//	│ outside │─────────────────────▶│ waiting │─────────────────────────▶│ held │──┐ Renew: Until
//	└─────────┘                      └─────────┘  look again when it goes └──────┘◀─┘ moves on
//	     ▲  ▲   nobody there: held at once │ ctx ended, session lost          │
//	     │  └──────────────────────────────┘                                  │
//	     └─────────── Release, Until is past, session lost ───────────────────┘
//
// A waiter watches his predecessor alone, and looks at the queues again when that
// one is gone; the look also shows that his own waiters are still there. There is
// no gap between reading and watching: the watch says at which revision it
// begins, and if that is not the read's, the queues are read once more beside it.
//
// Of each process one waiter per key is in etcd, the others stand in a line in the
// process, in order of arrival: a release wakes one process and not a crowd. Every
// grant is a new waiter in etcd, at the end of the queue; so a process with many
// waiters has one turn in each round, like one with few. First come, first served
// holds in a process, and in etcd among the first of each process.
//
// TryAcquire enters only if all queues are empty, in the same one transaction:
// who is refused has left nothing behind.
//
// # Until, and the session
//
// A Store has one session, kept alive each third of the TTL. Until counts from
// the sending of the last keep-alive that was answered, less a hundredth of the
// TTL for clocks that run at different rates. Renew brings a newer one, and
// looks whether the keys are still there. A Lease that nobody renews is deleted
// at its Until by this process, although the session lives on: an abandoned one
// is not kept for ever.
//
//	      granted      an answer in time       TTL - margin without one, or etcd
//	┌──────┐  ┌───────┐────┐                   says that the lease is gone        ┌──────┐
//	│ none │─▶│ alive │    │─────────────────────────────────────────────────────▶│ dead │
//	└──────┘  └───────┘◀───┘                   or a trace could not be removed    └──────┘
//	    ▲                                                                            │
//	    └──────── a new session; it never brings back what was under an old one ─────┘
//
// # An acquire without an answer
//
// It may have put a waiter that nobody knows of, or may do so yet, and that
// would stop its queues for as long as the session lives. So nothing new goes
// on the session until one transaction is confirmed that deletes the attempt's
// keys *and* writes the session's gate: every attempt compares the revision of
// the gate, so one that arrives after that is refused by etcd. If it is not
// confirmed within a third of the TTL the session is given up: no keep-alive
// any more, a new session for what comes, and the lease is revoked as soon as
// the last Lease on it is released or past its Until (to revoke earlier would
// give keys away that a holder still trusts in). So the keys of an attempt without
// an answer are free after a third of the TTL, what one request takes, and one TTL,
// as long as no leader dies meanwhile: a new one gives every lease its TTL again.
//
// An answer is not always a refusal either. etcd applies a transaction for which it
// finds no space, and answers that there is none. The keys of that attempt are
// deleted too, but nothing needs to wait for it: after an answer nothing arrives.
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
// # The source of fences
//
// A fence is a revision, and revisions begin again when etcd is wiped, or go back
// when it is restored. Old and new numbers look alike, and the cluster's id does not
// tell them apart: an etcd started with the same flags has the same one. So there is a
// random value, made when the first Store opens and under no lease, and every
// transaction that acquires compares it. A Source is the cluster's id and this
// value, and a grant is certainly of its Store's Source:
//
//	                              cluster's id   value      a running Store    a new Store
//	wiped                         the same       none       ErrSource          makes a new source
//	restored as a new cluster     another        the same   ErrSource          has a new source
//	restored in place             the same       the same   grants, lower      has the old source
//	… and then NewSource          the same       another    ErrSource          has the new source
//
// The third line nobody can see from here. The guard refuses the low numbers, and an
// operator, who knows what he has done, calls NewSource. The resource keeps the
// Source beside the fence, and refuses to compare fences of two of them.
//
// # What can go wrong
//
//	what happens                        what the holder sees                what others see
//	the reply to acquire is lost        undone, confirmed, made anew; or    busy until it is undone, at
//	                                    ErrOutcomeUnknown, undone later     most one TTL and a half
//	ctx ends while the request runs     ctx's error at once; undone in      the same
//	                                    the background
//	ctx ends in the queue               ctx's error and ErrBusy at once     the queue moves up
//	a request arrives very late         nothing: the gate refuses it        nothing
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
//	wiped, restored as a new cluster,   ErrLost                             ErrSource, and nothing is left in
//	or given a new source                                                   the queues, until they restart
//	restored in place                   ErrLost, if it was granted later    fences go back: the guard refuses
//	                                                                        them, until an operator calls
//	                                                                        NewSource
//
// So it promises exclusion among those who look at Until; that the keys of a
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
