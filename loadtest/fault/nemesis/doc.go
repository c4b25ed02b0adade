// SPDX-License-Identifier: MIT

// Package nemesis injects a sequence of faults into a system under load. A schedule drawn from a
// seed decides which faults, when, at which replica or server, and for how long. Some faults
// come in pairs.
//
// Question: do invariants that hold under each fault alone also hold under any sequence of faults,
// and under two at once?
//
// # Parts
//
// A Part is a fault.Fault that can be repeated, for a short time each, at one target. The faults of
// servers come from the other packages, with one repetition each. Those of this package:
//
//	Killed     SIGKILL to a replica, which stays dead for a while
//	Vanished   the same, but one store learns only later that its connections are closed
//	Paused     SIGSTOP to a replica
//	Cut        the link between a replica and a store loses everything, only the requests, or
//	           only the answers
//	Slowed     the link between a replica and a store delays everything, by varying times
//
// # The rule for two at once
//
// A service promises to survive one fault of each of its dependencies at a time, not any number.
// Therefore (see Together):
//
//   - A replica and a store have at most one fault each at a time. A cut counts for both its ends.
//   - Of n replicas at most (n-1)/2, a minority, have a fault. With two replicas none has.
//   - At most one store is unavailable as a whole, or elects a leader.
//   - No replica is killed while a store is unavailable: the replica could not start again.
//   - A fault that needs all stores and aims at single requests is injected alone (Part.Alone).
//
// A gap separates two rounds of faults. Every third gap, a calm, is long enough to judge the bounds
// of liveness. A control that only a fault can catch has no calms (Plan.Calm is 0), so that it meets
// each kind of fault within its two minutes.
//
// # Reproducibility
//
// A Schedule is a pure function of the seed, the time, the number of replicas and the parts.
// A round begins at its time, or later if the previous round is undone late. A round that
// would not end in time is skipped. The events report what happened. What a fault hits depends
// on the load and on the machine: the same seed repeats the faults, not the interleaving of
// requests.
//
// # Links
//
// A Link connects one replica to one store, through toxiproxy proxies in this process. A cut does
// more than toxiproxy's timeout: it drops and counts all data, and does not pass on the end of a
// connection. The store therefore keeps the session of the replica, with its locks, until the
// store's own limits end it, as behind a real partition. Lost data is not sent again when the
// link heals: the affected connections are closed.
//
// Clients of etcd connect to the addresses that they are given, so each etcd member has a proxy on
// each link. Clients of a MongoDB replica set learn the members' addresses from the set, and would
// bypass a proxy. mongofault.Proxy gives them one address that leads to the current primary
// (directConnection), with a link in front. This does not test the driver's own search for
// the primary; the faults step-down, primary-pause and primary-kill do. Links between members of a
// cluster are not cut, since members advertise their own addresses to each other; a stopped
// member is just as silent.
//
// # Limits
//
// The clock of a single replica is not shifted. libfaketime replaces the C library's functions, but
// Go programs read the clock without them; a Linux time namespace has offsets for the monotonic
// clock and the time since boot, not for the wall clock. A clock that jumps makes a lease end
// early, and redisfault.LockLost and etcdfault.LeasesRevoked have that effect.
//
// No part is a fail-over of Redis, which loses locks as redisfault.LockLost does. The tests of
// redislock run one, with Sentinel. Only transfers have the part that cuts a connection at COMMIT
// (pgfault.CommitCut). A purchase can lose the answer to its COMMIT when its link is cut.
package nemesis
