// SPDX-License-Identifier: MIT

// Command peers compares the lock stores of this repository with other Go libraries, on the same
// servers, in one run.
//
//	make peers
//
// # The question
//
// What does a lock cost that has a fence, a trust window, and an answer for each lost reply, compared with one
// that has not? And which of the waiters gets the key?
//
// # What is measured
//
//	free key       one goroutine takes and releases free keys: time of both
//	one key        64 goroutines of one process want one key, and do nothing while they hold it:
//	               hand-offs a second; fairness, which is the fewest grants of a goroutine divided by the
//	               most; requests to the server for each hand-off; CPU time of the client for each hand-off
//	processes      two and four processes, with 16 goroutines each, want one key: hand-offs a second of all,
//	               and the fairness among the processes; only with peers of the lock's kind
//
// With --lock, locking/combine over the fair lock of redisqueue is compared with each peer, whatever its server: 64
// goroutines in one process, and in four with 16 each. The work is to add one to a counter, which combine does for
// all goroutines that wait, under one lease. The rows and their targets are those of report/bench.json (make hot).
//
// The holder of a key adds one to a counter in memory that the processes share, without an atomic operation. After each
// measurement the counter must be what the goroutines say together, else two held the key at once.
//
// The machine is noisy, so nothing is compared over time. Ours and a peer run in turns, in pairs, and the order in
// the pair alternates. For a free key they take turns key by key, and a pair compares the medians of some hundred turns.
// Each pair has new connections, and two locks of PostgreSQL share theirs: the process of a connection stays on a
// core, which may change its time by more than two locks differ.
//
// The figure is the median of the ratios of the pairs. The interval leaves out the smallest
// and the largest of ten: the true median is inside with a probability of 97.9 % (of 10 pairs, by the binomial
// distribution, without any assumption on the noise).
//
// One key is wanted for 0.9 s each time. In 0.3 s the slowest locks make about as many grants as there are goroutines, and
// some tens of turns of processes: then the fewest and the most differ by chance.
//
// A hand-off counts if it ended within the measurement. Waiters of ours leave with their ctx; those of a peer that has none
// are granted the key after the end, which counts for the requests and the CPU time alone.
//
// Every lock is measured as its documentation recommends; rivals.go and the file of each server have the settings. MySQL is the MariaDB of mysqllock's
// tests, which flushes nothing to the disk, unless SHOP_MYSQL_DSN names a server.
//
// The folder is a module of its own, so that users of shop do not depend on the peers.
package main
