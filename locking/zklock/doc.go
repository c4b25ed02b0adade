// SPDX-License-Identifier: MIT

// Package zklock keeps locks in ZooKeeper: a queue of ephemeral sequential nodes for each
// key, in which each waiter watches the node before its own, and a fence that outlives
// every restart.
//
// # The question
//
// ZooKeeper deletes the nodes of a process that is dead, and tells the next waiter. How
// does a holder know that ZooKeeper still believes it to be alive, how does a process find
// the node whose creation was not answered, and what must be added to a client that has
// no time limits?
//
// # The invariant
//
// At any moment at most one lease of a key is within its Until, as long as clocks run at
// about the same rate. And, whatever the clocks do: of two grants of one key the later has
// the greater Fence. The first makes wasted work rare. The second makes the result correct,
// if the resource checks the fence (package locking: the guard).
//
// # What is stored
//
//	/locks/key:account%2F1                         a container: deleted when it is empty for a while
//	/locks/key:account%2F1/R7FQ…-0000000041        ephemeral: the holder
//	/locks/key:account%2F1/K3ZA…-0000000042        … the first waiter, which waits for the holder
//	/locks/key:account%2F1/W4TT…-0000000043        … the second, which waits for the first waiter
//
// A name begins with the owner, which is random for each node. Only the number at its end
// decides about the order. It is unique while the queue exists, and starts again at 0
// after ZooKeeper has deleted the container. So it is no fence. The fence is the id of the
// transaction that created the node (czxid), which only grows: its upper half is the number
// of the leader's election. The answer to a creation does not have it, so the same transaction writes the queue's
// own node, without data, and the answer has the new state of that: the transaction (mzxid) and the number of nodes.
//
//	          create, the first in the queue
//	┌─────────┐─────────────────────────────────────────────────▶┌──────┐
//	│ outside │  create    ┌─────────┐ the node before is deleted │ held │──┐ Renew: a later Until
//	└─────────┘───────────▶│ waiting │───────────────────────────▶└──────┘◀─┘
//	     ▲  ▲              └─────────┘ list again                     │
//	     │  └── ctx ended ──────┘                                     │
//	     └───── Release, Until is past, session expired ──────────────┘
//
// A waiter watches the node before its own. A waiter that
// leaves wakes the one behind it, which lists the queue again and waits for the next node in
// front. TryAcquire lists the queue first, and creates a node only if it is empty. Acquire needs
// no list if its node is the only one. Of the requests of a process for one key, one has a node; the others are in a
// locking.Line.
//
// # Until
//
// A Store has one session, whose timeout is the TTL. A lease is trusted for half the TTL
// after the sending of a request that the leader has answered: the creation of the node,
// or the check of Renew, which is a transaction and not a read. The other half is for what
// the leader does not know yet:
//
//   - A member only reports to the leader which sessions are alive when the leader asks, twice
//     in a tick. The shortest timeout is two ticks, if minSessionTimeout is not set. So a report
//     may be a quarter of the TTL late, and is missing if the member dies before it.
//   - The Store sends a request every twelfth of the TTL, so that the report before
//     that one is not much older.
//   - The rest, a sixth of the TTL, is for delays, and clocks that run at different rates.
//
// A member that has lost the leader answers reads and pings for some ticks more, while the
// leader lets the session expire: an answered ping proves nothing.
//
// The session lives longer than a lease that is not renewed. The Store deletes that node at
// its Until, so that an abandoned lease is not kept for ever (driver.Options.Lasting).
//
// # A request without an answer
//
// A connection on which a request is not answered for a sixth of the TTL is closed. The
// client continues the session on the next one. There the Store calls sync and lists the
// queue: if the creation had an effect, a name begins with the owner of the attempt.
// If there is none, it will never have one: a member closes the old connection of a
// session that connects to it again, and the leader refuses requests of a session that
// has moved to another member. So an attempt needs no second node, and what is left of
// one that was given up can be removed for good.
//
// # What goes wrong, and what happens then
//
//	what happens                        what the holder sees                what other clients see
//	the reply to acquire is lost        the node is found by its owner; or  busy until it is found or removed
//	                                    ErrOutcomeUnknown, removed later
//	the reply to release is lost        ErrOutcomeUnknown, deleted in the   busy until then
//	                                    background
//	ctx ends while the request runs     ctx's error at once; the node is    busy until then
//	                                    removed in the background
//	ctx ends in the queue               ctx's error and ErrBusy at once     the queue moves up
//	a member is silent                  nothing: another one serves the     nothing
//	                                    session after a quarter of the TTL
//	the leader dies                     requests fail and are retried; the  busy; the new leader gives
//	                                    session continues                   every session its timeout again
//	no quorum, no ZooKeeper             errors; the lease ends at its Until the same
//	the holder pauses beyond the TTL    Until is past when it wakes; Renew  free after the TTL and a tick,
//	                                    and Release: ErrLost                then a greater fence
//	the holder crashes                  -                                   the same
//	the session expires while waiting   waits again, at the queue's end     the queue moves up
//	an operator deletes the holder's    Renew: ErrLost                      free at once: two holders
//	node                                                                    until then; a waiter of the same
//	                                                                        Store waits for that, or Until
//	ZooKeeper refuses a release (ACL)   its error; it is repeated           busy until it is allowed
//	restart with the data               nothing, if within Until            busy; fences keep growing
//	the timeout is changed by the       New: ErrTTL                         -
//	servers' limits
//	all numbers of a queue are used     ErrFull: all leave, and a minute    the same
//	                                    later the container is new
//	wiped, or restored from a backup    Renew: ErrLost                      fences go back: the guard refuses
//	                                                                        them
//
// After 2^31 nodes ZooKeeper gives the same number to each further one. It happens to a queue
// that is never empty for long: at 1,000 locks a second, after 25 days.
//
// So the package promises exclusion among holders that respect Until; that the key of
// a dead process is free within the TTL and one tick, plus as long again if the leader
// dies with it; order of arrival; and a fence that always grows, unless ZooKeeper
// loses its data. A lease has one key.
//
// # The client
//
// The package is longer than the client's own Lock, which is not used: it does not report that it was lost, ignores
// ctx, and has no fence. Much of the package makes up for properties of github.com/go-zookeeper/zk 1.0.4,
// and finds again what it may have lost:
//
//	what it does                                          what is done instead
//	a request has no time limit and no ctx                each request has a goroutine; link.go closes
//	(issue 47, pull request 67)                           a connection without answers
//	a handshake may take seven times the timeout          it is limited to a sixth of the TTL
//	it does not report the granted session timeout        link.go reads it from the handshake
//	(samuel/go-zookeeper issue 193)
//	it reports a session while pings are answered         see "Until"
//	it waits for a second before it connects to an        hosts waits when all servers have failed
//	only server again, and resolves names once
//	(samuel/go-zookeeper issues 44, 157)
//	a data race when watches are set again after a        the first answer waits for the watches
//	reconnection (samuel/go-zookeeper issue 178)
//	a watch cannot be removed                             attempts share the watch of a node
//	Lock leaves its node behind if the search for a lost  the search is repeated in the background
//	reply fails (samuel/go-zookeeper issues 20, 229)
//	CreateProtectedEphemeralSequential may find the node  the owner of the node must be this session
//	of a session that has expired (as CURATOR-498 and
//	CURATOR-604), and searches without sync
//
// # Where to find what
//
//	zklock.go   New, Options; the names in ZooKeeper
//	locks.go    the driver: take, keep, free; a node in a queue
//	session.go  the session, and its end; requests with a limit
//	link.go     a connection, and its limits
//
// What all stores have in common is in package driver.
//
// # Sources
//
//   - P. Hunt, M. Konar, F. Junqueira, B. Reed, "ZooKeeper", USENIX ATC 2010: the lock
//     without a herd.
//   - ZooKeeper, "Recipes and Solutions", Locks, and its note on recoverable errors and the GUID.
//   - Apache Curator, "Technical Note 10" and InterProcessMutex, with its issues
//     CURATOR-206, 498, 604, 678: two holders after a pause, a node taken over from a session that
//     has expired, a release that is not repeated.
//   - ZooKeeper's Leader.lead, Learner.ping, LearnerHandler (PING, REVALIDATE) and
//     SessionTrackerImpl: who knows when that a session is alive. ZooKeeperServer
//     (CLIENT_RECONNECT) and SessionTrackerImpl.checkSession: the end of an old connection.
//     PrepRequestProcessor and DataNode: sequence numbers.
package zklock
