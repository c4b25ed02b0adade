// Package loadtest loads a service from outside, breaks what it leans on, and
// asks its database what really happened.
//
// Question: how do you know that it never oversells, other than by reading it?
//
// # What a proof is
//
// The same crowd is sent to several replicas at once, whatever strategy they
// run. It wants at least twice of what is there, so that the last unit of
// everything is fought over. While it does, one fault is inflicted. Afterwards
// nobody who took part is asked: all replicas are stopped, it is waited until
// no connection is left on the database, and SQL compares the tables with each
// other and with what every client was told.
//
//	plan ──▶ vegeta, open loop ──▶ recorder ──▶ replica 1 ┐
//	          one in ten twice        │    ──▶ replica 2 ├──▶ PostgreSQL, Redis
//	             at once              │    ──▶ replica 3 ┘        ▲
//	                                  ▼                            │ fault
//	undecided? ◀── what each key was told                          │
//	    └──▶ same key again, next replica                       audit (SQL),
//	                                                    when all replicas are gone
//
// # What it is not
//
// No tool passes anything. A run that finds nothing reports that it found
// nothing, in so many requests, under this fault, on this machine. Therefore:
//
//   - Controls: strategies that are wrong on purpose run under the same load. A
//     control that is not caught fails the proof, for then the checker is blind.
//     Each says what it must break and what must hold all the same.
//   - Void: a run in which nothing could have gone wrong is neither good nor bad
//     (see VoidReasons). No two requests for one product met on different
//     replicas; the fault did not land; or it did not cause what it is for.
//   - Safe is more than unbroken: everything that was there must be sold, and a
//     purchase must succeed soon after each fault. Who answers 503 to everything
//     oversells nothing, and fails.
//   - Every audit query has a test in which it finds a planted violation.
//
// # What a client may conclude from an answer
//
//	outcome    means                                              then
//	ok         2xx: it happened                                   final
//	rejected   sold out, or never valid: it will never happen     final
//	open       busy, lost, nobody listened: this attempt did not  same key again
//	unknown    in progress, 500, 504, no answer: it may have      same key again
//
// By the type of the problem, never by the status: see Classify. A key is sent
// again until it is decided or patience ends; one that stays undecided breaks
// I-LIVE. Sold out is an answer, and no error.
//
// # Invariants
//
//	S1         stock = put there − bought, by order lines, by movements, line by line
//	S1-DURING  the same at every look while the load runs (one statement, one snapshot)
//	S2         told ok ≤ taken from the shelf ≤ told ok + unknown
//	I-ACK      what was acknowledged is there, as it was acknowledged
//	I-REJ      what was refused, or never asked for, is not there
//	I-ONCE     one effect for each key; all final answers to it equal, byte for byte
//	I-WHOLE    an order has all its lines, or does not exist
//	I-LIVE     success within a bound after each fault, every key decided, and in
//	           the end an order of every product can be cancelled and bought again
//	I-SOLD     nothing is left of what everyone wanted
//
// # Where the widening delay sits
//
// Replicas pause between reading the stock and acting on it (after-guard), each
// time for another while, drawn from one exponential distribution with the same
// seed for all strategies. That makes the controls fail within seconds. Before
// the read (after-acquire) it would widen nothing for naive, which holds no lock
// to lose; and a constant pause would keep whoever comes first first.
//
// # Traps
//
//   - net/http repeats a request with an Idempotency-Key by itself (Recorder).
//   - A vegeta.Attacker is good for one attack, and its Success counts a 409 as
//     a failure; neither is used here for anything but latencies (Attack).
//   - Time stamps are monotonic and of one clock, that of the History.
//   - An audit while a killed replica's last COMMIT is on its way sees half of it
//     (WaitQuiet).
//
// # Sources
//
// Outcome classes, the nemesis, and "no tool passes": Jepsen (Kingsbury). Void
// runs, a minimum of traffic, a last operation that must succeed: the robustness
// suite of etcd. That a lock may always be lost, so that only the store can tell:
// Kleppmann, How to do distributed locking. Open loop and coordinated omission:
// vegeta's documentation, and the measurements in its issues.
package loadtest
