// Package pglock is what PostgreSQL can do for a lock.
//
// # The question
//
// A lease grants a key for a limited time. A holder that is paused, or whose packet
// is late, writes after that time, when the key has another holder. No look at a
// clock prevents it: the pause may come between the look and the write. What does?
//
// # The guard
//
// The database can refuse the write, if it knows which holder is newer. Each grant of a lease has a
// Fence, greater than all before it. Guard takes it along into the transaction
// that writes, and keeps the greatest one beside the resource:
//
//	tx:  Guard(ctx, tx, "account/7", lease.Fence)   ← first
//	     SELECT … what the decision needs …
//	     UPDATE … what was decided …
//	     COMMIT
//
// # Invariant
//
//	of the transactions that guard one resource and commit, none has a fence
//	smaller than one that committed before it; and what one of them read behind
//	its guard did not change until its end
//
// The second half is the row lock that Guard's UPDATE takes, also where it writes
// the value that is there already. It makes the check and the commit one step:
//
//	            fence is newer, or the same
//	┌─────────┐ ──────────────────────────► ┌──────────────┐ COMMIT   the fence is remembered
//	│ guarded │                             │ row is ours  │────────►
//	│ by none │ ◄────────────────────────── │ others wait  │ ROLLBACK as if never asked
//	└─────────┘   end of the transaction    └──────────────┘────────►
//	     │ fence is older
//	     └──► ErrStale: roll back
//
// # Where it stands
//
// First, before any read that the decision uses. A guard at the write alone lets
// an update be lost: A reads 100, B reads 100, A writes with fence 5, B writes
// with fence 6; both guards pass. Where work between read and write has to leave
// the transaction, guard before the read, and again at the write.
//
// # What goes wrong, and what happens then
//
//	an old holder comes late               ErrStale; nothing of its transaction stays
//	… while the new one's tx is open       it waits for that to end, and is then ErrStale
//	… and the new one rolls back           it passes: no newer holder has written
//	one holder commits several times       equal passes
//	two resources                          guard them in one order everywhere, or deadlock (40P01)
//	REPEATABLE READ, SERIALIZABLE          a lost race is 40001 first; run again, it is ErrStale
//	Guard outside of a transaction         an error: its row lock would be gone before the write
//	fence 0                                an error: the store cannot fence
//	the fences' epoch begins anew          ErrStale for ever: put the epoch into the name of the
//	                                       resource, or keep it beside the fence, as package transfer does
//
// # Sources
//
//   - M. Kleppmann, "How to do distributed locking", 2016: the fencing token, checked by the storage.
//   - etcd, "etcd versus other key-value stores": "the resources must provide the version number validation".
//   - PostgreSQL manual: INSERT … ON CONFLICT DO UPDATE, "all rows will be locked when the ON CONFLICT DO
//     UPDATE action is taken"; 13.2.1 Read Committed: WHERE is evaluated again on the row's new version.
package pglock
