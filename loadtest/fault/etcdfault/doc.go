// Package etcdfault does to etcd what operators and machines do to it: it
// revokes the leases under locks, kills leaders, and takes the quorum away.
//
// Question: do the locks cost time, and never money, when etcd does not keep
// what it granted, or does not answer?
//
//	LeasesRevoked  all leases with keys below a prefix are revoked, again and
//	               again: every holder goes on as if it still held its lock
//	LeaderKill     the leader is killed, and started again: an election, and
//	               every lease gets its TTL again
//	NoQuorum       two of three members are gone for a while: nothing is granted
//
// Evict takes one holder's lease away, for pgfault.LateWrite. Leftovers lists what
// is left of locks when all replicas have stopped: nothing, if all is well.
package etcdfault
