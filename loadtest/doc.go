// Package loadtest loads a service from outside, breaks what it depends on, and
// reads from its database what really happened.
//
// Question: how is it known, other than by reading its code, that a service never
// oversells and never loses money?
//
// # What a proof is
//
// The same workload is sent to several replicas at once, whatever strategy they
// run. Meanwhile one fault is injected. Afterwards no process that took part is trusted: all
// replicas are stopped, the proof waits until no connection of theirs is left on the
// database, and SQL (or aggregations, in MongoDB) compares the tables with each
// other and with every reply that a client got.
//
// What is sent and what must be true of it is a Flow; all else is the same for all. The
// flows are packages below scenario/ (scenario/money is what two of them share), and prove hands
// them to the engine:
//
//	plan ──▶ vegeta, open loop ──▶ recorder ──▶ replica 1 ┐
//	          one in ten twice        │    ──▶ replica 2 ├──▶ PostgreSQL, MongoDB, Redis …
//	             at once              │    ──▶ replica 3 ┘        ▲
//	                                  ▼                            │ fault
//	undecided? ◀── the replies for each key                        │
//	    └──▶ retrier: same key, next replica                     audit,
//	                                                    when all replicas are gone
//
// The words of this package: an Intent is one thing that a client wants, under one
// idempotency key; a Plan schedules requests for intents; a Run sends a plan and retries
// each key until it is decided; a Trial is one Scenario under way: a strategy, a fault, and
// a verdict. The postcheck follows the load and precedes the audit. A sidecar is a process
// beside the replicas. A control is a strategy that is wrong on purpose.
//
// # What it is not
//
// No run proves that there is no error. A run that finds nothing reports that it found
// nothing, in so many requests, under this fault, on this machine. Therefore:
//
//   - Controls run under the same load. A control that is not caught fails the proof: the
//     checks do not work. Each says what it must break and what must hold all the same.
//   - Inconclusive ("void" in prove.json): a run in which nothing could have gone wrong is
//     neither good nor bad (see InconclusiveReasons): no two requests for one product met on
//     different replicas, the fault did not happen, it did not have its effect, or the load
//     was not sent when the plan says (LagBound).
//   - Safe is more than unbroken: everything that was there must be sold, a purchase
//     must succeed soon after each fault, and the service must keep up with the load (Pace).
//     A service that answers 503 to everything, or to every second request, oversells
//     nothing, and fails. What is left of the money must be spendable to the last unit.
//   - Evidence comes from the history of the clients, the fault, a server or the wire. What
//     replicas count about themselves may explain a run. No verdict depends on it.
//   - Nothing that a service wrote about itself is believed: openings, prices, owners and the set of
//     objects are those of the plan, and times are compared with the clients' clock.
//   - Every audit query has a test in which it finds a planted violation.
//
// # What is sent beside the load
//
// Reads (Intent.Reads) go among the writes: each field of each answer is compared with the plan and
// the database (I-BODY). Some requests are not allowed (Intent.Refusals): they must end in one of the
// problems that say so (I-DENY), and have no effect. They come from another client, under another
// client's key or a key that was used before, again when it is over, or about what does not exist. And some keys are not sent
// again after "busy" (Intent.GivesUp): they must have no effect either (I-REJ).
//
// # What a client may conclude from an answer
//
//	outcome    means                                              then
//	ok         2xx: it happened                                   final
//	rejected   sold out, no money, or never valid: it never will  final
//	open       busy, lost, no connection: this attempt did not    same key again
//	unknown    in progress, 500, 504, no answer: it may have      same key again
//
// The type of the problem decides, never the status: see Classify. A key is sent
// again until it is decided or its time (Proof.Grace) is over. A key that stays undecided
// breaks liveness (I-LIVE). Sold out is an answer, and no error.
//
// # Invariants
//
// They are defined beside their queries: those that can be checked in the tables alone in
// the lessons (inventory/invariants.sql, transfer/invariants.sql, wallet/invariants.go), those
// that compare the tables with the replies to clients in the flows, and those of every flow
// in Invariants. `bin/prove --help` and the report list them with their names.
//
// # Histories
//
// Each operation of a scenario goes to history.jsonl in its folder, with what the database
// shows of those without an answer. Package linear checks it: the answers must be those of a
// service that does one operation after the other (I-LIN). The models are those of the flows.
// A check that runs out of time or memory makes the run inconclusive. "prove check FILE" judges
// a history again, without a server.
//
// # Soak
//
// A soak runs the default strategies of all flows at once on one set of replicas, for hours. Its load
// comes in shifts, each of which is a scenario: it is audited and checked as any other, with all keys
// decided and no transaction open, but with replicas that live on. Then what grows by nature (orders,
// transfers, wallets and their entries) is removed, so that neither the audit nor its memory grows
// with the length of the soak; it is therefore not known what tables of millions of rows do to the
// service. Idempotency keys and refusals stay: they are dated back by more than the day for which they
// are kept, and it is up to the batch to purge them. Package soak reads the processes and the stores
// meanwhile, and judges whether each series of readings is bounded.
//
// # What a latency is
//
// The time of a key begins when the plan has its first request, and ends with the answer that
// decides it: what a client waits for, every repetition included (Latency). The percentiles
// are computed from all keys.
//
// # Where the widening delay sits
//
// Replicas pause between reading the stock, or the accounts, and acting on it (after-guard),
// for a time drawn from one exponential distribution with the same seed for all strategies;
// transfers also before their guard, and not under late-write, which delays by itself. That
// makes the controls fail within seconds. Before the read (after-acquire) it would not widen
// the race of naive; and with a constant pause the request that comes first would always write first.
//
// # Traps
//
//   - net/http repeats a request with an Idempotency-Key by itself (Recorder).
//   - A vegeta.Attacker is good for one attack, and its Success counts a 409 as a failure.
//     Its results are written for its own tools, and nothing is judged by them (Attack).
//   - Time stamps are monotonic and of one clock, that of the History.
//   - An audit while a killed replica's last COMMIT is on its way sees half of it
//     (WaitQuiet, and waitQuiet of the wallet flow).
//   - MongoDB tells connections of different clients apart only by the name that a
//     client gives itself: the URL of a scenario has it.
//
// # Sources
//
// Outcome classes, the nemesis, and that no run proves the absence of errors: Jepsen (Kingsbury). Inconclusive
// runs, a minimum of traffic, a last operation that must succeed: the robustness
// suite of etcd. That a lock may always be lost, so that only the store can tell:
// Kleppmann, How to do distributed locking. Open loop and coordinated omission:
// vegeta's documentation, and the measurements in its issues.
package loadtest
