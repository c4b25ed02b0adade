// Package etcdfault does to etcd, and to the locks in it, what operators and dying
// machines do.
//
// Question: is money still right when the lock service takes a lock away from who
// holds it, changes its mind about who leads, or is gone?
//
//	fault          type           what happens                             must be seen, or the run is void
//	lease-revoked  LeasesRevoked  the lease of one who holds a lock is     leases_revoked; fences refused, or (of
//	                              revoked, drawn at random, many times     an unsafe strategy) money lost
//	leader-kill    LeaderKill     SIGKILL to the leader; the others elect  members_killed, elections: how far the
//	                              another, then it is started again        others' raft term went
//	no-quorum      NoQuorum       SIGKILL to the majority at once; later   quorum_losses: a survivor said that it
//	                              all are started again                    knows no leader
//
// Beside them: Evict takes one account's lock away, for fault.LateWrite; Leftovers
// and LeftAfter are what the audit looks at (T6): when all have gone, no lock is left.
//
// Locks are etcdlock's: PREFIX/LENGTH:KEY/MARK. All keys of an attempt have one create
// revision, and it holds them when each is the lowest of its queue. A lock may be given
// back between the look and the revocation: so what counts is looked at again, as it
// was one revision before. A lease is a replica's whole session: all its locks go at
// once. Members that were killed are started again in every ending.
package etcdfault
