// SPDX-License-Identifier: MIT

// Package combine serves all requests that wait for a key in this process under one lease of its
// lock: flat combining, under a distributed lock.
//
// # The question
//
// A thousand clients want one row. A lock serves them one by one, and each pays for a round trip to
// the lock service, one to the row, and a commit. How can one holder do the work of all requests that wait,
// and still give each its own answer, exactly once?
//
// # The invariant
//
// Every call of Do gets one answer: the one of its own request. A batch runs only under a lease
// that this process trusts, and never beside another batch of the same keys in this process. The
// requests of one process are applied in the order of arrival, unless one is applied a second time.
//
// What makes the result right is not this package: Apply checks the fence, or locks the row, as any
// holder must (package locking). And a request must be idempotent: see below.
//
// # How it works
//
//	Do ──▶ [r1 r2 r3 r4 r5 …]      a queue for each set of keys; ErrFull when it is too long
//	             │
//	             │ the first request of an empty queue starts a goroutine, which
//	             │ ends when the queue is empty
//	             ▼
//	      take the lease ──▶ batch r1 r2 r3 ──▶ batch r4 r5 ──▶ … ──▶ release
//	             ▲            Apply, answers      Apply, answers        │
//	             └─────────────────── MaxTurn is over: Pause ───────────┘
//	                            so that other processes get the lease
//
// A request is queued, running or answered. The mutex of the Combiner guards the change:
//
//	queued     its ctx ends: it is taken out, and had no effect
//	running    its ctx is ignored: it is answered by what happened
//	answered   Do returns
//
// After a batch the lease is kept for a moment (MaxGather), until the clients that were just answered have sent
// their next requests. Otherwise the first few of these would be a small batch and the others a large one, and a
// client alone would take a new lease for each request. If fewer requests wait then than a quarter of the largest
// batch of the turn, the lease is released before MaxTurn: more requests may wait in another process.
//
// Requests with the same Key in one batch are one request: Apply gets the first, all get its answer (Merged). When
// all clients have left, the goroutine stops waiting for the lease.
//
// # When the outcome is unknown
//
// Apply returns an error that matches locking.ErrOutcomeUnknown when its COMMIT was not answered. Then
// nothing else may run under this lease: a write may still be under way. The lease is given up, a new
// one with a greater fence is taken, and the requests of the batch are queued again, before all others. If the
// first COMMIT took effect, Apply finds the stored answer of each request under its idempotency key, and returns
// that. After a panic, and for its last try, each request is applied alone, so that one bad request does not fail
// the others. After a lost lease (ErrLost) or a refused fence (ErrStale) the requests of the batch are queued
// again as well, but not one by one.
//
// To give up a lease is to let it expire, which takes up to a TTL. With Guarded it is released at once: then the rows
// themselves keep a late write of the old batch away from the new one. A client whose ctx has ended does not wait for the
// new lease: Do returns ErrOutcomeUnknown. It returns the same after Tries tries. Once the outcome is unknown, only a
// try that succeeds decides it: the error of a later try does not.
//
// # What goes wrong, and what happens then
//
//	what happens                       the requests of the batch           those that wait
//	the lock is busy for MaxWait       -                                   those queued when the lease was requested:
//	                                                                       ErrNoLease, ErrBusy
//	no answer from the lock service    -                                   the same: ErrNoLease, its error
//	Apply fails, nothing was done      its error                           the next batch, under a new lease
//	… because of one request (OfOne)   each half of the batch is applied   the next batch
//	Apply's COMMIT is not answered     applied again, under a lease with   wait for that
//	                                   a greater fence
//	Apply returns another number of    ErrResults, at once: a bug. Apply   the next batch, under a new lease
//	results                            has ended: the lease is released
//	Apply panics                       the same, each alone; after Tries   wait for that
//	                                   ErrPanic. Each panic is logged
//	the lease is lost                  Apply's ctx ends; tried again, if   wait for a new lease
//	                                   Apply returns an error
//	too little trust is left for a     -                                   wait for a new lease; after Tries such
//	batch                                                                  leases in a row ErrNoLease, ErrLost
//	… for a half of it, after OfOne    the first half: both are applied    wait for a new lease
//	                                   again; the second half: its
//	                                   requests are ErrLost, those of the
//	                                   first have their results
//	Apply takes longer than            no effect on their results          get smaller batches, which grow again when
//	MaxBatchTime                                                           Apply takes less than half of MaxBatchTime
//	a client leaves                    it waits for its answer, but not    it is taken out
//	                                   for another lease
//	the process pauses beyond the TTL  ErrStale or ErrLost: applied again, wait for a new lease
//	                                   under a new lease
//	the process dies                   unknown: each client repeats its    not done
//	                                   request under its key
//
// # What it does not do
//
// It does not make a Store fair. After MaxTurn, and after a turn that ended while requests wait, the Combiner
// releases the lease, and pauses (Pause) before it requests the lease again: without the pause the next requests of
// the clients that were just answered would take the lease before another process does. Another process gets its
// turn if the Store wakes it or has a queue. It may starve if the Store polls.
//
// It does not reorder, and it does not share anything between processes: each has its own queue, and
// the lock decides between them. Two sets of keys that overlap are two queues, which the lock excludes
// from each other, as long as the Store takes several keys at once.
//
// # Sources
//
//   - D. Hendler, I. Incze, N. Shavit, M. Tzafrir, "Flat Combining and the Synchronization-Parallelism
//     Tradeoff", SPAA 2010. There the combiner is one of the waiting threads. Here it is a goroutine of
//     its own, since a client may leave at any time.
//   - Y. Oyama, K. Taura, A. Yonezawa, "Executing Parallel Programs with Synchronization Bottlenecks
//     Efficiently", 1999: the idea of one owner that runs the critical sections of all.
//   - P. Helland, "Life beyond Distributed Transactions", CIDR 2007: idempotent requests.
package combine
