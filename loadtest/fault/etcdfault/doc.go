// SPDX-License-Identifier: MIT

// Package etcdfault injects the faults of operators and machines into etcd: it
// revokes the leases of locks, kills leaders, and removes the quorum.
//
// Question: do lost locks and an unavailable etcd cost only time, and never money?
//
//	LeasesRevoked  all leases with keys below a prefix are revoked repeatedly:
//	               every holder continues as if it still held its lock
//	LeaderKill     the leader is killed and started again: an election follows,
//	               and every lease gets its full TTL again
//	NoQuorum       two of three members are gone for a while: no lock is granted
//
// Evict revokes the lease of one holder, for pgfault.LateWrite. Leftovers lists
// traces of locks after all replicas have stopped; a correct service leaves none.
package etcdfault
