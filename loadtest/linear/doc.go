// SPDX-License-Identifier: MIT

// Package linear checks histories for linearizability: whether the answers that clients got can come
// from one service that does one operation after the other.
//
// Question: a balance that is right in the end may have been wrong for a moment. How is a stale read, a
// lost update that a later one hides, or a refusal without a reason found?
//
// An operation takes effect at one moment between its call and its return. A history is legal if there are
// such moments for which a model of the service (see Partition) gives each operation the answer that its
// client got. The model executes the operations in the order of these moments.
//
//	answer                  interval          what the model must do
//	ok                      call … return     the effect
//	refused                 call … return     the same refusal, without an effect
//	unknown, it happened    call … no end     the effect
//	unknown, not known      call … no end     the effect or nothing
//	unknown, it did not     -                 left out
//	refused, it happened    call … return     always a violation
//	open, it happened       call … return     always a violation
//	open otherwise          -                 left out
//	read                    call … return     the same answer
//
// An operation is open if its client did not retry after the answer that nothing was done ("busy").
// Whether an operation happened is what the database shows after the service has stopped.
//
// # How it is checked
//
// A history is split into partitions that are independent of each other. In each partition, orders are
// tried until one is legal or none is left. The first is the order of the writes in the database
// (Step.Order), with the reads inserted where they fit. A legal order is verified separately: a wrong
// order from the database can cost time, but never gives a wrong verdict. Amounts that reads show (Step.Shows)
// end a wrong order early, and after ten thousand positions the writes are tried by their returns.
//
// Narrower views of a partition are checked first, such as one account of a group. An illegal part makes
// the partition illegal. If all parts are legal, their orders are composed to an order of the whole, which
// is verified: legal parts alone prove nothing.
//
// An illegal partition is cut down: to the illegal part, to the shortest illegal prefix by return time, and
// to the reads and refusals without which it would be legal. porcupine must find the rest illegal too, and
// draws it.
//
// The time for each partition and the heap of the process are bounded. A check that exceeds a limit is
// undecided, which never counts in favour of the service.
//
// # Sources
//
// Linearizability: Herlihy and Wing. The search: Wing and Gong, Lowe; porcupine (Athalye). Unknown
// outcomes narrowed by what was persisted: the robustness suite of etcd.
package linear
