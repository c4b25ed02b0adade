// Package mongofault does to a MongoDB replica set what operators, machines and
// networks do to it, and checks what its clients send.
//
// Question: does an operation happen once, and is each acknowledged operation stored,
// when the primary goes away, or gives no result of a commit?
//
//	StepDown       the primary is told to step down: open transactions are aborted
//	PrimaryPause   the primary is stopped until another is elected, and comes back
//	               in the belief that it is the primary
//	PrimaryKill    the primary is killed with writes that no other member has: what
//	               was acknowledged by less than a majority is rolled back
//	CommitUnknown  a commit is done, and its client gets no answer, or the answer that its
//	               result is unknown
//
// After a fault, Agree tells whether all members have the same data, and RolledBack
// which operations were rolled back. Lifetime sets how long the servers keep a transaction of
// a client that is silent.
//
// A Proxy reads what goes to the primary, and knows the rules of a
// transaction with a lock in front:
//
//	R1  the first statement of a transaction is the lock: findAndModify of a wallet,
//	    {$set: {lockId: <ObjectId>}}
//	R2  a lockId is new: no other transaction had it
//	R3  no statement is outside of a transaction, except aggregations, which only read
//	R4  no commit after a statement that was answered with an error
//
// A breach of a rule is seen in any run; the money that it loses only after a collision.
package mongofault
