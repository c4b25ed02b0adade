// Package pglock checks a lease's fence in a PostgreSQL transaction.
//
// # The question
//
// A lease grants a key for a limited time. A holder that is paused, or whose packet is
// late, may write after that time, when the key has another holder. Checking a clock does
// not prevent it: the pause may come between the check and the write. What does?
//
// # The guard
//
// The database can refuse the write, if it knows which holder is newer. Each grant of a
// lease has a Fence, greater than all before it. Guard passes the fence to the
// transaction that writes, and stores the greatest fence of the resource:
//
//	tx:  Guard(ctx, tx, "account/7", lease.Fence)   ← first
//	     SELECT … what the decision needs …
//	     UPDATE … what was decided …
//	     COMMIT
//
// # Invariant
//
//	of the transactions that guard one resource and commit, none has a fence
//	smaller than one that committed before it; and what a transaction has read
//	after its guard does not change until its end
//
// The second part follows from the row lock that Guard's UPDATE takes, even if it writes
// the present value. The row lock makes the check and the commit one step:
//
//	            fence is newer, or equal
//	┌─────────┐ ──────────────────────────► ┌──────────────┐ COMMIT   the fence is stored
//	│   not   │                             │ row is locked│────────►
//	│ guarded │ ◄────────────────────────── │ others wait  │ ROLLBACK no effect
//	└─────────┘   end of the transaction    └──────────────┘────────►
//	     │ fence is older
//	     └──► ErrStale: roll back
//
// # Where to call it
//
// First, before any read that the decision uses. With a guard at the write alone an
// update can be lost: A reads 100, B reads 100, A writes with fence 5, B writes with
// fence 6; both guards pass. If work between the read and the write leaves the
// transaction, guard before the read, and again at the write.
//
// # What goes wrong, and what happens then
//
//	an old holder is late                  ErrStale; its transaction is rolled back
//	… while the new holder's tx is open    its guard waits for that tx to end, then ErrStale
//	… and the new holder rolls back        its guard passes: no newer holder has written
//	one holder commits several times       an equal fence passes
//	two resources                          guard them in one order everywhere, or deadlock (40P01)
//	REPEATABLE READ, SERIALIZABLE          a lost race is 40001 first; ErrStale when it runs again
//	Guard outside of a transaction         an error: its row lock would be gone before the write
//	fence 0                                an error: the store cannot fence
//	the fences' epoch restarts             ErrStale for ever: put the epoch into the name of the
//	                                       resource, or store it with the fence, as package transfer does
//
// # Sources
//
//   - M. Kleppmann, "How to do distributed locking", 2016: the fencing token, checked by the storage.
//   - etcd, "etcd versus other key-value stores": "the resources must provide the version number validation".
//   - PostgreSQL manual: INSERT … ON CONFLICT DO UPDATE, "all rows will be locked when the ON CONFLICT DO
//     UPDATE action is taken"; 13.2.1 Read Committed: WHERE is evaluated again on the row's new version.
package pglock
