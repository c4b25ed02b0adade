// SPDX-License-Identifier: MIT

// Package fault injects the faults of operators, kernels and networks into a system
// that is under load.
//
// Question: do the invariants still hold when a server that the system needs fails?
//
//	fault          type                        what happens                                    required evidence, or the run is inconclusive
//	crash          replicafault.Crash          SIGKILL to a replica, started again             crashes: kills that interrupted a request; cut_off
//	crash          replicafault.CrashSteps     SIGKILL at each step of a request, in turn      cut_off, crash_STEP of each step, interrupted requests
//	pause          replicafault.Pauses         SIGSTOP to a replica for 1.5 to 5 TTLs          pauses that held a request; leases_ended (etcd), or outlived (MongoDB)
//	lock-lost      redisfault.LockLost         lock keys in Redis deleted under their holders  locks_deleted, lock_calls (Redis)
//	redis-down     fault.Restart               SIGKILL to Redis, started again                 redis_kills, done_meanwhile, lock_calls_after (Redis)
//	redis-failover redisfault.Failover         Sentinel promotes a replica without the latest  redis_failovers, two_holders,
//	                                           locks; a replica of the service is paused in    lock_calls_after (Redis)
//	                                           one of them, and resumes within its TTL
//	combiner-      replicafault.CrashSteps     SIGKILL at each step of a transaction that      crashes, cut_off, together
//	killed                                     answers several requests
//	combiner-      replicafault.Pauses         SIGSTOP in such a transaction                   pauses, together; outlived (MongoDB)
//	paused
//	hang-up        loadtest.HangUps            clients close connections before the answer         hung_up; cut_off
//	late-write     pgfault.LateWrite           a write to PostgreSQL is delayed until a newer  late_writes, late_stopped; late_refused of a
//	                                           holder has written                              safe strategy, late_committed of an unsafe one
//	commit-cut     pgfault.CommitCut           the connection breaks right before, or after,   commits_cut_before, commits_cut_after,
//	                                           COMMIT reaches PostgreSQL                       decided_after_cut; batches_cut of combined
//	pg-restart     fault.Restart               SIGKILL to PostgreSQL, started again            pg_restarts, disturbed
//	standby-gone   pgfault.Standby             SIGKILL to the synchronous standby of           commits_waited, outcome_unknown, done_after
//	                                           PostgreSQL, started again after seconds
//	primary-lost   pgfault.Standby             the same, and then SIGKILL to the primary for   commits_waited, outcome_unknown, promotions,
//	                                           good; the standby is started and promoted       done_after
//	primary-lost-  pgfault.Standby             the same, with an asynchronous standby: a       done_meanwhile, promotions, done_after
//	async                                      control
//	lease-revoked  etcdfault.LeasesRevoked     leases revoked in etcd, many times              leases_revoked; stale_answers of a safe strategy
//	leader-kill    etcdfault.LeaderKill        SIGKILL to the leader of three members          elections
//	no-quorum      etcdfault.NoQuorum          two of three members killed, or paused          quorum_losses, refused_meanwhile, lock_calls_after (etcd)
//	step-down      mongofault.StepDown         replSetStepDown to the primary                  elections, transactions_open (MongoDB)
//	primary-pause  mongofault.PrimaryPause     SIGSTOP to the primary until an election        elections, transactions_open (MongoDB)
//	primary-kill   mongofault.PrimaryKill      SIGKILL to a primary with writes that no other  elections, rolled_back
//	                                           member has, started again
//	commit-unknown mongofault.CommitUnknown    the answer to a commit is dropped, or is a      commits_cut, commits_failed,
//	                                           write concern error                             decided_after_cut
//	crash-matrix   crashmatrix.Injection       one request is stopped at a step; its replica   cells_hit; no cell is empty
//	                                           is killed, paused, or cut off from a store
//	all-killed     fault.AllKilled             SIGKILL to all servers at once, started again   all_killed, disturbed, done_after
//	all-killed-    fault.AllKilled             the same, with COMMITs that do not wait for     all_killed, disturbed, done_after
//	async                                      the disk: a control
//	nemesis        nemesis.Nemesis             a sequence of these, and of broken links        faults: at least 3 that hit something
//	                                           between replicas and stores, drawn from a seed  at_rest of a safe strategy
//
// Each fault must have hit a request that was under way. Counters of the replicas themselves are no
// evidence. The lock service is observed from outside: redisfault.Calls counts the calls to Redis,
// etcdfault.Queued the entries in the queues of etcd.
//
// Each fault returns Events: what it did, when, and the evidence in numbers. A fault
// without evidence that it happened proves nothing. All but the nemesis inject one class of
// fault at a time, so that a violation has one cause. A fault ends at its time, or a little
// later, once its last action is undone.
//
// Faults between a replica and a server act in a proxy (package proxy), whose address the replica
// gets as its database: pgfault.Proxy, mongofault.Proxy. The second way of LateWrite, which stops
// the replica, needs replicas without failpoints: with failpoints each step of a transfer is
// a segment of its own, and PostgreSQL ends the open transaction of a silent client. With
// failpoints LateWrite only revokes the lease.
//
// Sources: the nemesis of Jepsen; the failpoints of etcd's robustness suite
// (which voids a run whose fault did not happen); `etcdctl lease revoke` in etcd's
// own contrib/lock, the cheapest way to lose a lock without a failover;
// M. Kleppmann, "How to do distributed locking" (2016): the late write.
package fault
