// Package etcdfault does to etcd what operators and machines do to it: it
// revokes the leases under locks, kills leaders, and takes the quorum away.
//
// Question: do the locks cost time, and never money, when etcd does not keep
// what it granted, or does not answer?
//
//	LeasesRevoked  all leases with keys below a prefix are revoked, again and
//	               again: every holder goes on in the belief that it holds
//	LeaderKill     the leader is killed, and started again: an election, and
//	               every lease gets its TTL again
//	NoQuorum       two of three members are gone for a while: nothing is granted
//
// Evict takes one holder's lease away, for fault.LateWrite. Leftovers is what
// should be nothing when all replicas have stopped.
package etcdfault
