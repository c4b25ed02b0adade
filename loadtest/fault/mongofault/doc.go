// SPDX-License-Identifier: MIT

// Package mongofault injects the faults of operators, machines and networks into a
// MongoDB replica set, and checks the statements that clients send.
//
// Question: does every operation happen once, and is every acknowledged operation stored,
// when the primary fails, or does not return the result of a commit?
//
//	StepDown       the primary steps down: open transactions are aborted
//	PrimaryPause   the primary is stopped until another is elected, and resumes
//	               in the belief that it is still the primary
//	PrimaryKill    the primary is killed with writes that no other member has: writes
//	               that were acknowledged by less than a majority are rolled back
//	CommitUnknown  a commit succeeds, but its client gets no answer, or the answer that
//	               the result is unknown
//
// After a fault, Agree checks whether all members have the same data, and RolledBack
// lists the operations that were rolled back. Lifetime sets how long the servers keep the
// transaction of a silent client.
//
// A Proxy reads the traffic to the primary, and checks the rules of a transaction that
// begins with a lock:
//
//	R1  the first statement of a transaction is the lock: findAndModify of a wallet,
//	    {$set: {lockId: <ObjectId>}}
//	R2  a lockId is new: no other transaction has used it
//	R3  no statement is outside of a transaction, except aggregations, which only read
//	R4  no commit after a statement that failed
//
// Any run shows a breach of a rule; money is lost only if transactions collide.
package mongofault
