// Package crashmatrix does one thing to one replica at one step of one request, then the next
// thing, then the same at the next step: the cells of a matrix.
//
// Question: is there any point of a request at which the end of its process, a long pause, or the
// loss of a store leaves more than one effect of it, half of one, or a lie to its client?
//
// # A cell
//
// The replica, the victim, is started with a failpoint for each cell: SIGSTOP at the step, once, when the request with
// the key of that cell is there. It gets no load but the requests of the cells. Each cell has
// products, accounts or wallets of its own.
//
//	1  a request of the kind succeeds at the victim: it is sound, and reaches its stores
//	2  the request of the cell is sent to it, and stops it at the step
//	3  a rival asks another replica for the same object; where answers are to be lost, the client
//	   asks again there too, under the same key
//	4  killed   SIGKILL, and the victim is started again
//	   paused   until the lock's TTL is over, and a rival has had the object; then SIGCONT
//	   cut      the victim's link to a store loses requests, or answers; SIGCONT; the link heals
//	            when something was lost
//	5  the key is sent again by its client, until it is decided, and a last rival succeeds
//	6  the cell is judged
//
// # Evidence
//
// A cell without all of this is empty, and shows nothing:
//
//	hit at its step   the kernel shows the process as stopped, and the database shows the effect
//	                  of the key behind the commit, and not before it
//	killed            the wait status of the process is SIGKILL
//	paused            the process stood still from beginning to end, for longer than the TTL
//	cut               the proxy lost what the replica, or the store, has sent. Behind the last step that uses
//	                  the store there is nothing to lose: then connections stood on the link
//
// # Violated
//
// A cell is violated when a key stays undecided, has more or other effects than its client was
// told, gets two answers, or when an invariant of the tables is broken by the objects of the cell. All other invariants,
// the history included, are those of the scenario: they are checked when all cells are done.
//
// # What it is not
//
// A step is between two statements. What is on the wire at that moment is the matter of late-write and
// commit-cut. A holder that was paused looks at its lease before it sends COMMIT, so that redis-only and etcd-unfenced
// stand each cell: they are wrong when the lease ends behind that look. The controls are strategies
// that are wrong without it: naive, paused between its read and its write.
package crashmatrix
