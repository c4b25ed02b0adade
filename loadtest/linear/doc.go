// Package linear checks histories for linearizability: it says whether the answers that
// clients got can have come from one service that does one operation after the other.
//
// Question: a balance that is right in the end may have been wrong for a moment. How is a
// stale read, a lost update that a later one hides, or a refusal without a reason found?
//
// An operation takes effect at one moment between its call and its return. A history is
// legal if the operations can be put in an order in which each comes at such a moment, and
// in which a model of the service (see Partition) gives each the answer that its client got.
//
//	answer                  interval          what the model must do
//	ok                      call … return     the effect
//	refused                 call … return     the same refusal, without an effect
//	unknown, it happened    call … no end     the effect
//	unknown, not known      call … no end     the effect or nothing
//	unknown, it did not     -                 left out
//	refused, it happened    call … return     none: no order is legal
//	read                    call … return     the same answer
//
// What happened of an operation without an answer is what the database shows when the
// service is gone.
//
// # How it is checked
//
// A history falls into partitions that have nothing to do with each other. In each, orders are
// tried until one is legal or none is left: the order that the database gives to the writes
// (Step.Order) first, with the reads put where they fit. An order that is found is verified on
// its own, so that what the database says may cost time, and never gives a wrong verdict.
//
// Narrower views of a partition come first, such as one account of a group. An illegal part
// makes the partition illegal. Orders of all parts are put together to one of the whole, which
// is verified; legal parts alone say nothing.
//
// What is illegal is cut down: to the part, to the shortest beginning by return time, and to
// the reads and refusals without which it would be legal. What is left is given to porcupine,
// which must find it illegal too, and draws it.
//
// The time of each partition and the heap of the process are bounded. A check that runs out
// is undecided, which is no verdict in favour of the service.
//
// # Sources
//
// Linearizability: Herlihy and Wing. The search: Wing and Gong, Lowe; porcupine (Athalye). Unknown
// outcomes narrowed by what was persisted: the robustness suite of etcd.
package linear
