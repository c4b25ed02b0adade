// Package loadtest loads a service from outside, breaks what it leans on, and
// asks its database what really happened.
//
// Question: how do you know that it never oversells, and never loses money,
// other than by reading it?
//
// # What a proof is
//
// The same crowd is sent to several replicas at once, whatever strategy they
// run. While it is there, one fault is inflicted. Afterwards nobody who took part
// is asked: all replicas are stopped, it is waited until no connection of theirs is left on
// the database, and SQL (or aggregates, in MongoDB) compares the tables with each
// other and with what every client was told.
//
// What is sent and what must be true of it is a Flow; all else is the same for all.
//
//	inventory  buyers of ten products that are dropped one after the other, who
//	           want at least twice of what is there: the last unit of everything
//	           is fought over
//	transfer   64 clients who send at the same moment, again and again. Each owns
//	           an account; all of them have to do with 8 hot ones, which are short
//	           of money and pay each other in opposite directions. Of the holds a
//	           post and a void come at the same moment, about when they expire,
//	           while a sweeper runs beside the replicas
//	wallet     clients who send at the same moment, again and again: credits and
//	           debits of one hot wallet, a ring of eight who pay each other in both
//	           directions, some who have their wallets to themselves, and one who uses
//	           one key for two wallets. Replicas ask a service outside (Bonus) what
//	           each credit gets on top; it remembers who asked
//
//	plan ──▶ vegeta, open loop ──▶ recorder ──▶ replica 1 ┐
//	          one in ten twice        │    ──▶ replica 2 ├──▶ PostgreSQL, MongoDB, Redis …
//	             at once              │    ──▶ replica 3 ┘        ▲
//	                                  ▼                            │ fault
//	undecided? ◀── what each key was told                          │
//	    └──▶ same key again, next replica                        audit,
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
//     oversells nothing, and fails. Money has to be spent to the last unit, by who has it.
//   - Every audit query has a test in which it finds a planted violation.
//
// # What a client may conclude from an answer
//
//	outcome    means                                              then
//	ok         2xx: it happened                                   final
//	rejected   sold out, no money, or never valid: it never will  final
//	open       busy, lost, nobody listened: this attempt did not  same key again
//	unknown    in progress, 500, 504, no answer: it may have      same key again
//
// By the type of the problem, never by the status: see Classify. A key is sent
// again until it is decided or patience ends; one that stays undecided breaks
// I-LIVE. Sold out is an answer, and no error.
//
// # Invariants
//
//	of inventory
//	S1         stock = put there − bought, by order lines, by movements, line by line;
//	           put there by the plan, not by the service's own word
//	S1-DURING  the same at every look while the load runs (one statement, one snapshot)
//	S2         told ok ≤ taken from the shelf ≤ told ok + unknown
//	I-WHOLE    an order has all its lines, or does not exist
//	I-SOLD     nothing is left of what everyone wanted
//	of transfer
//	T1         the sum of all balances is what was paid in; accounts are as the plan opened them
//	T1-DURING  the same at every look while the load runs, and T3
//	T2         a posted transfer has two entries that sum up to nothing, others have none
//	T3         balance = opening + entries; held = its reserved transfers; 0 ≤ held ≤ balance
//	T4         the fences of an account's entries never go down
//	T6         when nobody is left, no lock is, within its TTL
//	I-RIGHT    without a fault, no holder of a lock is refused
//	I-HOLD     of post, void and expiry one wins, the one that was told, in time;
//	           what is over is not reserved after the sweeper's last round
//	I-SPENT    all that is available can be sent, and not one more; who has enough
//	           for everything is never refused
//	of wallet
//	M1         the sum of all balances is all openings and all entries; wallets are as the plan opened them
//	M1-DURING  the same at every look while the load runs, and for each wallet; none below 0
//	M2         a credit has one entry of amount + bonus, a debit one of −amount, a payment two
//	           that sum up to nothing, a refusal none; balance = opening + entries ≥ 0
//	M3         no operation is done twice
//	M4         all members of the replica set are the same, and nothing acknowledged is in a rollback file
//	W-SIDE     the outside applies an operation once, what it gave is in a balance exactly if it
//	           was committed, and who may ask twice is known (side): without a fault, no
//	           request but one that came to a time limit
//	W-WIRE     on the wire, transactions begin with a lock that is new, and nothing is beside them
//	I-RIGHT    nobody is refused for another reason than his money, or a key that he used before
//	I-SPENT    as above; and a key that is decided does not do for another wallet
//	of all
//	I-ACK      what was acknowledged is there, as it was acknowledged
//	I-REJ      what was refused, or never asked for, is not there
//	I-ONCE     one effect for each key while its answer is kept (24 hours at the least);
//	           all final answers to it equal, byte for byte
//	I-LIVE     success within a bound after each fault, every key decided, decided
//	           keys answer when they are asked again, and in the end an order of
//	           every product can be cancelled and bought again
//
// # Where the widening delay sits
//
// Replicas pause between reading the stock, or the accounts, and acting on it (after-guard), each
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
//     (WaitQuiet, waitMongoQuiet).
//   - MongoDB gives no hint which connections are whose, other than the name that a
//     client gives itself: the URL of a scenario has it.
//
// # Sources
//
// Outcome classes, the nemesis, and "no tool passes": Jepsen (Kingsbury). Void
// runs, a minimum of traffic, a last operation that must succeed: the robustness
// suite of etcd. That a lock may always be lost, so that only the store can tell:
// Kleppmann, How to do distributed locking. Open loop and coordinated omission:
// vegeta's documentation, and the measurements in its issues.
package loadtest
