// Package mongofault does to a MongoDB replica set what operators, machines and
// networks do to it, and checks what its clients send.
//
// Question: does an operation happen once, and is what was acknowledged there,
// when the primary goes away, or does not say what became of a commit?
//
//	StepDown       the primary is told to step down: open transactions are aborted
//	PrimaryPause   the primary stands still until another is elected, and comes back
//	               in the belief that it is the primary
//	PrimaryKill    the primary is killed with writes that no other member has: what
//	               was acknowledged by less than a majority is rolled back
//	CommitUnknown  a commit is done, and its client gets no answer, or the answer that its
//	               result is unknown
//
// After a fault, Agree tells whether all members have the same, and RolledBack
// what was taken back. Lifetime sets how long the servers keep a transaction of
// a client that is silent.
//
// A Proxy overhears what goes to the primary, and knows the rules of a
// transaction with a lock in front:
//
//	R1  the first statement of a transaction is the lock: findAndModify of a wallet,
//	    {$set: {lockId: <ObjectId>}}
//	R2  a lockId is new: no other transaction had it
//	R3  no statement is outside of a transaction; aggregations are readers'
//	R4  no commit behind a statement that was answered with an error
//
// A breach shows without a collision; the money that is lost by it does not.
package mongofault
