// Package fault does to a system, while it is under load, what operators,
// kernels and networks do to it.
//
// Question: do the invariants still hold when a server that the system needs goes away?
//
//	fault          type                        what happens                                    must show, or the run is inconclusive
//	crash          replicafault.Crash          SIGKILL to a replica, started again             crashes: kills that cut a request off; cut_off
//	crash          replicafault.CrashSteps     SIGKILL at each step of a request, in turn      cut_off, crash_STEP of each step, a request cut off
//	pause          replicafault.Pauses         SIGSTOP to a replica for 1.5 to 5 TTLs          pauses that held a request; leases_ended (etcd), or outlived (MongoDB)
//	lock-lost      redisfault.LockLost         lock keys in Redis deleted under their holders  locks_deleted, lock_calls (Redis)
//	redis-down     fault.Restart               SIGKILL to Redis, started again                 redis_kills, done_meanwhile, lock_calls_after (Redis)
//	late-write     pgfault.LateWrite           a write to PostgreSQL is held until a newer     late_writes, late_stopped; late_refused of a
//	                                           holder has written, and then delivered          safe strategy, late_committed of an unsafe one
//	commit-cut     pgfault.CommitCut           the connection breaks right before, or after,   commits_cut_before, commits_cut_after,
//	                                           COMMIT gets to PostgreSQL                       decided_after_cut
//	pg-restart     fault.Restart               SIGKILL to PostgreSQL, started again            pg_restarts, disturbed
//	lease-revoked  etcdfault.LeasesRevoked     leases revoked in etcd, many times              leases_revoked; stale_answers of a safe strategy
//	leader-kill    etcdfault.LeaderKill        SIGKILL to the leader of three members          elections
//	no-quorum      etcdfault.NoQuorum          two of three members killed, or paused          quorum_losses, refused_meanwhile, lock_calls_after (etcd)
//	step-down      mongofault.StepDown         replSetStepDown to the primary                  elections, transactions_open (MongoDB)
//	primary-pause  mongofault.PrimaryPause     SIGSTOP to the primary until there is another   elections, transactions_open (MongoDB)
//	primary-kill   mongofault.PrimaryKill      SIGKILL to a primary with writes that no other  elections, rolled_back
//	                                           member has, started again
//	commit-unknown mongofault.CommitUnknown    the answer to a commit is swallowed, or says    commits_cut, commits_failed,
//	                                           that the write concern was not reached          decided_after_cut
//	crash-matrix   crashmatrix.Matrix          one request is stopped at a step; its replica   cells_hit; no cell is empty
//	                                           is killed, paused, or cut from a store
//	nemesis        nemesis.Nemesis             one of these after the other, or a link between     faults: at least 3 that hit something
//	                                           a replica and a store broken, as a seed says
//	soak           fault.Restart               SIGKILL to a store in every other shift,        restarts
//	                                           started again
//
// Under each of them a request must have been hit: under way while it lasted. What replicas
// count about themselves is no evidence. The lock service is watched from outside: redisfault.Calls
// counts what it was asked for, etcdfault.Queued what was put into its queues.
//
// Each returns what it did and when, as Events, with the evidence in numbers: a
// fault that cannot be shown to have happened proves nothing. But for a nemesis,
// faults come one class at a time, so that a violation has one cause. Each ends with its
// time, or a little later: when its last action is undone.
//
// Faults between a replica and a server act in a proxy (package proxy), which the replica
// gets as its database: pgfault.Proxy, mongofault.Proxy. LateWrite in its second way, the
// stopped replica, needs replicas without failpoints: with failpoints each step of a transfer is
// a segment of its own, and PostgreSQL ends the open transaction of a silent client. There the
// lease is only revoked.
//
// Sources: the nemesis of Jepsen; the failpoints of etcd's robustness suite
// (which voids a run whose fault did not land); `etcdctl lease revoke` in etcd's
// own contrib/lock, the cheapest way to lose a lock without failing anything over;
// M. Kleppmann, "How to do distributed locking" (2016): the write that is late.
package fault
