// SPDX-License-Identifier: MIT

// Command bench reads what benchstat says of the benchmarks of this folder. It prints the ratios of what is compared
// and whether the targets (targets.go) are met, and writes them as JSON.
//
//	make hot      the strategies for hot keys against the plain ones
//	make peers    the lock stores against other Go libraries
//
// The first question: many clients want one product, one pair of accounts, or one wallet. What does it gain to serve all of
// them in one transaction? The second: what does a lock cost that has a fence, a trust window, and an answer for each
// lost reply, compared with one that has not? And which of the waiters gets the key?
//
// # What a ratio rests on
//
// The machine is noisy, and other programs on it slow down whatever runs beside them. So all benchmarks run in turns: each
// once, then each again, ten times, in every second turn from the last to the first. Each turn is a new process with new
// connections. A ratio is that of two rates (ops/s) or times (sec/op) of one turn. benchstat makes the median of the ten, and
// the interval that contains the true median with a probability of 95 %, without any assumption on the noise; here the
// interval reaches as far below the median as above it. If 1 is outside, the two differ. The rates themselves depend on
// the machine.
//
// The turns are in report/bench.txt, for other questions: how does a strategy keep its rate as clients come?
//
//	go -C loadtest/bench tool benchstat -filter '/strategy:combined /processes:1 .unit:ops/s' -col /clients ../../report/bench.txt
//
// # Hot keys
//
// A load is a closed loop: each client sends its next request when it has the answer to the last. A request
// that is answered "busy" is sent again under its key, and its latency is counted from the first time. Clients
// start requests for -benchtime, and the rate is that of all requests over the time until the last answer. First, each
// client sends one request that is not counted: it connects and prepares statements. After each load
// the invariants of the flow are checked in the database: a fast wrong answer is no answer.
//
// The processes of a load are separate programs with their own connections. Each has its share of the clients.
//
// The services in process have a pool of 32 connections to PostgreSQL, where shop serve has 16, and leases of 10 s,
// where shop serve has 2 s for a product and 5 s for accounts. The queue of a wallet has 4,096 places, where shop serve
// has 128, since all clients are one client, which may have a quarter of the places.
//
// Over HTTP, three processes of shop serve get the purchases on loopback, in turn. They refuse nothing: there is no
// --rate-limit and no --max-keys, --max-in-flight and --max-per-client are above the number of clients, and
// --request-timeout is above the wait of the last client at the row lock. All other settings are the defaults.
//
// An empty POST is the same request to the same server without the purchase: package api, with its real table of
// clients, all of its middleware (limits, the checks of JSON and of openapi.yaml, metrics, one log line for each
// request), its handler, and an answer of the same form. It has no transaction, no lock and no stored reply. A request
// that is refused, or that is answered from its stored reply, would not do: the first skips a part of
// the server, and the second reads the database. What is left of its rate is what the purchase costs, on cores
// which the servers, the databases and the clients share.
//
// # Locks
//
// The holder of a key adds one to a counter in memory that the processes share, without an atomic operation. After each
// measurement the counter must be what the goroutines say together, else two held the key at once.
//
// min/max is fairness: the fewest grants of a goroutine, or of a process, divided by the most. requests/op are those to the
// server for each grant.
//
// A grant counts if it ended within -benchtime. Waiters of ours leave with their ctx; those of a peer that has none
// are granted the key after the end, which counts for the requests and the CPU time alone. -benchtime should be a second: in
// 0.3 s the slowest locks make about as many grants as there are goroutines, and some tens of turns of processes: then the
// fewest and the most differ by chance.
//
// combine, over the fair lock of redisqueue, runs the sections of all goroutines that wait under one lease. It is
// compared with each peer, whatever its server.
//
// Every lock is measured as its documentation recommends; locks_test.go and the file of each server have the settings.
// MySQL is the MariaDB of mysqllock's tests, which flushes nothing to the disk, unless SHOP_MYSQL_DSN names a server.
//
// The folder is a module of its own, so that users of shop do not depend on the peers. TestLibraries (make libraries) runs
// the contract of a lock over them.
package main
