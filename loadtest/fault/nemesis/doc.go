// Package nemesis does one fault after the other to a system under load, by a schedule that is
// drawn from a seed: which, when, at which replica or server, for how long, and sometimes two
// at once.
//
// Question: does what holds under each fault alone hold under any sequence of them, and under
// two at once?
//
// # Parts
//
// A Part is a fault.Fault that can be done again and again, for a short while, at one target.
// The faults of servers are those of the other packages, with one repetition. Those of this package:
//
//	Killed     SIGKILL to a replica, which stays dead for a while
//	Vanished   the same, and one store learns only later that its connections are closed
//	Paused     SIGSTOP to a replica
//	Cut        a replica and a store exchange nothing: in both directions, only requests are
//	           lost, or only answers are
//	Slowed     what a replica and a store say to each other is late, by varying times
//
// # The rule for two at once
//
// A service promises to survive one fault of each thing that it stands on, not any number of
// them. Therefore (see Together):
//
//   - A replica and a store have at most one fault each at a time. A cut is one of both.
//   - Of n replicas at most (n-1)/2, a minority, have a fault. With two replicas none has.
//   - At most one store is away as a whole, or elects a leader.
//   - No replica is killed while a store is away: it could not be started.
//
// Between two rounds of faults there is a gap. Every third one, the calm, is long enough for the
// bounds of liveness to be judged.
//
// # What repeats and what does not
//
// A Schedule is a pure function of the seed, the time, the number of replicas and the parts.
// A round begins at its time, or later if the one before was not undone in time; a round that
// would not end in time is left out. The events say what happened. What a fault hits depends
// on the load and on the machine: the same seed repeats the faults, not the interleaving of
// requests.
//
// # Links
//
// A Link is the way of one replica to one store, through proxies of toxiproxy in this process. To
// cut a link is more than toxiproxy's timeout: it drops what is sent, counts it, and keeps
// the end of a connection to itself. So the store holds the session of the replica, with its
// locks, until its own limits end it, as behind a real partition. A packet that was lost is not
// sent again when the link heals: the connections that were silent are closed.
//
// Clients of etcd connect to the addresses that they are given, so that each of its members
// has a proxy on each link. Clients of a MongoDB replica set learn the members' addresses from
// the set and would go past a proxy. mongofault.Proxy gives them one address that leads to the
// primary of the moment (directConnection), and a link stands before it. So the driver's own
// search for the primary is not tried here, but under the faults step-down, primary-pause and
// primary-kill. Links between members of a cluster are not cut: the members advertise
// their own addresses to each other. A member that is stopped is silent likewise.
//
// # What is not tried
//
// The clock of one replica is not shifted. libfaketime replaces the C library's functions, and
// Go programs read the clock without it; a Linux time namespace has offsets for the monotonic
// clock and the time since boot, not for the wall clock. A lease that ends early is what a
// clock that jumps comes to: redisfault.LockLost and etcdfault.LeasesRevoked do that.
package nemesis
