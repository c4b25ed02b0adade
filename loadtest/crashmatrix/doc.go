// SPDX-License-Identifier: MIT

// Package crashmatrix injects each fault of a replica at each step of a request. One fault at one
// step is a cell of the matrix.
//
// Question: is there a step of a request at which the death of its process, a long pause, or the
// loss of a store leaves two effects, half an effect, or a wrong answer to the client?
//
// # A cell
//
// One replica, the victim, is started with a failpoint for each cell: it stops itself with SIGSTOP
// when the request with the key of that cell reaches the step. The victim gets no load except the
// requests of the cells. Each cell has its own products, accounts or wallets.
//
//	1  a request of the same kind succeeds at the victim, which shows that it reaches its stores
//	2  the request of the cell is sent to the victim, and stops it at the step
//	3  a rival requests the same object from another replica; if answers are to be lost, the
//	   client also repeats its request there, under the same key
//	4  killed   SIGKILL, and the victim is started again
//	   paused   until the lock's TTL has passed and a rival has held the object; then SIGCONT
//	   cut      the victim's link to a store loses requests, or answers; SIGCONT; the link heals
//	            after something was lost
//	5  the client repeats the key until it is decided, and a last rival succeeds
//	6  the cell is judged
//
// # Evidence
//
// A cell that lacks any of this is empty, and proves nothing:
//
//	hit at its step   the kernel reports the process as stopped, and the database shows the effect
//	                  of the key if the step is after the commit, and no effect before it
//	killed            the wait status of the process is SIGKILL
//	paused            the process was stopped throughout, for longer than the TTL
//	cut               the proxy dropped data of the replica, or of the store. After the last step that
//	                  uses the store no data is sent; then open connections on the link suffice
//
// # Violated
//
// A cell is violated if a key stays undecided or gets two different answers, if its effects differ
// from the answer, or if objects of the cell break an invariant of the tables. All other invariants,
// those of the history included, are checked for the whole scenario after the last cell.
//
// # Limits
//
// A step is between two statements. The faults late-write and commit-cut cover messages under
// way: a proxy delays or cuts them.
// The request of a cell is a purchase, a transfer without a hold, a payment or a credit. Cancellations,
// holds, posts, voids and debits pass the same steps, but only the other scenarios inject faults into them.
// After a pause a holder checks its lease before it sends COMMIT, so redis-only and etcd-unfenced
// pass every cell: they are wrong only if the lease expires after that check. The controls are
// strategies without such a check: naive, paused between its read and its write.
package crashmatrix
