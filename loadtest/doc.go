// SPDX-License-Identifier: MIT

// Package loadtest loads a service from outside, injects faults into what the service depends on, and
// audits its database for what really happened.
//
// Question: how is it known, without reading its code, that a service never oversells and never loses
// money?
//
// # What a proof is
//
// Every strategy gets the same workload, which is sent to several replicas at once. One fault is injected
// during the load. Afterwards the proof trusts no process that took part: it stops all replicas and waits
// until none of their connections to the database is left. Then SQL (in MongoDB, aggregations) compares
// the tables with each other and with every reply that a client received.
//
// A Flow defines what is sent and what must be true of it; everything else is the same for all flows. The
// flows are packages below scenario/ (two of them share scenario/money), and the program prove hands them
// to the engine:
//
//	plan ──▶ vegeta, open loop ──▶ recorder ──▶ replica 1 ┐
//	       half of it in bursts,      │    ──▶ replica 2 ├──▶ PostgreSQL, MongoDB, Redis …
//	     one in ten twice at once     │    ──▶ replica 3 ┘        ▲
//	                                  ▼                            │ fault
//	undecided? ◀── the replies for each key                        │
//	    └──▶ retrier: same key, next replica                     audit,
//	                                                    when all replicas are gone
//
// # Where to look
//
// Each package knows only those above it:
//
//	fault/       what hurts a server, a replica, or the connection between them: a type for each fault
//	traffic/     a plan is sent, and what the clients saw is kept
//	site/        what runs: replicas, a process beside them, a database
//	linear/      can the answers be those of a service that does one operation after the other?
//	judge/       what follows from the records and the rows
//	.            a scenario: flow.go says what a flow is, proof.go runs it, audit.go collects what is wrong, verdict.go judges
//	crashmatrix/ one fault beside the others: each step of a request, killed, paused or cut off, one at a time
//	scenario/    the three flows: their plans, audits and models
//	report/      the table, JSON, JUnit, and the page
//	target/      the proof of a service that is not ours
//	prove/       the program: its flags, the servers, and for each flow how its replicas are started
//
// A flow has these files: flow.go (what it is, its faults, what is checked after the load), plan.go, hostile.go (requests
// that are not allowed), answers.go (what answers must say), audit.go, model.go, cells.go (of the crash matrix).
//
// # Read one scenario
//
// The path of inventory/redis+row/lock-lost, from main to its verdict, is in these files, in this order:
//
//	prove/main.go                                                            flags become scenarios
//	prove/environment.go, prove/inventory.go                                 what a scenario gets: replicas, a fault, evidence
//	flow.go, setup.go, scenario/inventory/flow.go, scenario/inventory/plan.go  what a flow and a fault are, and this one: what clients send
//	proof.go                                                                 the protocol of a trial
//	traffic/plan.go, traffic/attack.go, traffic/run.go                       the load and the retries
//	traffic/recorder.go, traffic/history.go                                  what clients saw
//	fault/fault.go, fault/redisfault/lost.go                                 the fault
//	audit.go, scenario/inventory/audit.go                                    what the database shows
//	judge/live.go, judge/evidence.go, verdict.go                             what follows
//
// These are 20 files with about 4,510 lines, about 3,570 of them code.
//
// Not read:
//
//	prove                              other commands and flows, and the servers that other faults kill
//	fault, crashmatrix                 other faults
//	allkilled.go, combiner.go          …
//	nemesis.go, standby.go             …
//	scenario                           other flows; of this one the model, reads, and requests that are not allowed
//	site                               how replicas are started and stopped, and databases made
//	traffic                            which problem means what; percentiles
//	judge                              the pace, the samples while the load runs, operations for package linear
//	linear, linearize.go               the search for an order of the operations
//	rest.go, twice.go                  what is at rest after a nemesis; when a scenario is run again
//	report, headline.go, checked.go    what is printed
//	result.go, shown.go                …
//	../cmd, ../compose, ../locking     the shop, its locks, and the local stack
//	../inventory, ../transfer          …
//	../wallet                          …
//
// A new fault is a type in package fault and an entry in the table of a flow's faults (scenario/FLOW/flow.go): the servers that
// it needs, how it is injected, and the evidence without which a run shows nothing. Tests name its rows in the documents.
//
// The terms of this package: an Intent is one thing that a client wants, under one idempotency key. A
// Plan schedules requests for intents. A Run sends a plan and retries each key until it is decided. A
// Scenario is a strategy, a fault and the expected verdict; a Trial is one Scenario in progress. The
// postcheck runs between the load and the audit. A sidecar is a process that runs beside the replicas. A
// control is a strategy that is wrong on purpose.
//
// # What it is not
//
// No run proves that there is no error. A run that finds nothing reports only that: no violation in this
// number of requests, under this fault, on this machine. Therefore:
//
//   - Controls run under the same load. If a control is not caught, the checks do not work and the proof
//     fails. Each control names the invariants that it must break and those that must hold.
//   - A run in which nothing could have gone wrong is inconclusive ("void" in prove.json), neither good
//     nor bad (see InconclusiveReasons): too few requests with different keys for one product overlapped on
//     different replicas (OverlapsLeast), the fault failed, did not happen or had no effect, the load was
//     not sent when the plan says (LagBound), or the scenario could not be run. It is then run once more, as is a
//     control that was violated without its evidence, and the report says so;
//     Nemesis and a foreign service (Target) are not. If the last run is inconclusive too, the proof fails.
//   - Safe means more than unbroken: everything in stock must be sold, a purchase must succeed soon after
//     each fault, and the service must keep up with the load (Pace). A service that answers 503 to every
//     request, or to every second one, oversells nothing, and fails. All money that is left must be
//     spendable, to the last unit.
//   - Evidence comes from the history of the clients, from the fault, from a server or from the network
//     traffic. What replicas count about themselves may explain a run, but no verdict depends on it, except for
//     goroutines and idle connections (LeakInvariant).
//   - Nothing that the service wrote about itself is trusted: opening balances, prices, owners and the
//     set of objects come from the plan, and times are compared with the clients' clock.
//   - Every audit query has a test in which it finds a planted violation.
//
// # Bursts
//
// Two requests lose an update only if both are under way at the same time. Requests that are spread evenly hardly
// meet: a service that reads, compares and writes without a lock looked safe under a steady 100 requests a second.
// Therefore requests with different keys for one object are sent at the same time, to all replicas, over open
// connections: purchases and requests to a Target in bursts of 10 to 50 (Load.Slots) among others that come alone,
// transfers in bursts of all clients of which about ten concern one account, and ten operations of one wallet at
// a time. Overlaps counts the pairs that did meet.
//
// # What is sent beside the load
//
// Reads (Intent.Reads) are mixed with the writes: each field of each answer is compared with the plan and
// the database (I-BODY). Some requests are not allowed (Intent.Refusals): they must be refused with one
// of the listed problems (I-DENY), and must have no effect. They are sent by a client that does not own
// the object, under a key that was used for another request, for something that has ended, or for
// something that does not exist. One intent in SameKeyEvery has the key of another client's intent, which
// is allowed: keys of different clients are independent. A write that is allowed may be refused only for a
// reason that the flow knows, such as sold out (I-ALLOW). Some keys are not retried after "busy"
// (Intent.GivesUp): they must have no effect either (I-REJ).
//
// # What a client may conclude from an answer
//
//	outcome    answer                                  effect                         then
//	ok         2xx                                     it happened                    final
//	rejected   sold out, no money, or never valid      none, and there will be none   final
//	open       busy, lease lost, no connection         none by this attempt           same key again
//	unknown    in progress, 500, 504, no answer        it may have happened           same key again
//
// The type of the problem decides, never the status alone: see Flow.Classify. A key is retried until it is
// decided or until Proof.Grace after the load is over. A key that stays undecided breaks liveness
// (I-LIVE). Sold out is an answer, not an error.
//
// # Invariants
//
// Invariants are defined beside their queries. Those that the tables alone can show are in the lessons
// (inventory/invariants.sql, transfer/invariants.sql, wallet/invariants.js). Those that compare the
// tables with the replies to clients are in the flows. Those of every flow are in Invariants. The report
// and `bin/prove --help` list all of them with their names.
//
// # Histories
//
// The operations of a scenario are written to history.jsonl in its folder, together with what the
// database shows of operations without an answer. Package linear checks the history: the answers must be
// those of a service that does one operation after the other (I-LIN). Each flow provides its model. A
// check that runs out of time or memory makes the run inconclusive. "prove check FILE" checks a history
// again, without a server.
//
// # At rest
//
// A service whose answers are right may leak. After a Nemesis, when the load has ended and the locks have expired, each
// process and store must have what it had before the load, give or take a slack: goroutines, open files, memory,
// connections, locks, leases (LeakInvariant). A replica that a fault has restarted is compared from its restart on. A
// growth that only a long series of readings shows, as a slope or a sawtooth, is not looked for.
//
// # What a latency is
//
// The latency of a key begins at the planned time of its first request, and ends with the answer that
// decides the key. It is what a client waits, retries included (Latency). The percentiles are computed
// from all keys.
//
// # The pause that widens the race
//
// Replicas of strategies that must be safe pause between reading the stock or the accounts and acting on what
// they read (after-guard), so that a race or a lost lock shows. The pause is drawn from one exponential
// distribution with the same seed for all of them. Controls have no pause: the load and their fault alone violate
// them (bin/prove --strategy naive). Two were not violated in each run without it, and have it, as the report says:
// redis-only under redis-failover, etcd-unfenced under lease-revoked (Scenario.NeedsPause). The controls of
// a Nemesis have it too. Transfers pause before their guard too; under late-write, which is a delay itself, they have
// neither pause. A pause before the read (after-acquire) would not widen the race, and with a constant pause the
// request that arrives first would always write first.
//
// # Traps
//
//   - net/http by itself retries a request that has an Idempotency-Key (see Recorder).
//   - A vegeta.Attacker works for one attack only, and its Success counts a 409 as a failure. vegeta's
//     results are saved for its own tools, and no verdict depends on them (see Attack).
//   - Time stamps are monotonic and come from one clock, that of the History.
//   - While the last COMMIT of a killed replica is still in progress, some queries of an audit may run before
//     it and others after it (see WaitQuiet of package site, for PostgreSQL and for MongoDB).
//   - MongoDB can tell the connections of different clients apart only by the application name that the
//     client sends: the URL of a scenario contains it.
//
// # Sources
//
// Outcome classes, the nemesis, and that no run proves the absence of errors: Jepsen (Kingsbury).
// Inconclusive runs, a minimum of traffic, a last operation that must succeed: the robustness suite of
// etcd. That a lock may always be lost, so that only the store can decide: Kleppmann, How to do
// distributed locking. Open loop and coordinated omission: vegeta's documentation, and the measurements
// in its issues.
package loadtest
