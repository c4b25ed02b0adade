// SPDX-License-Identifier: MIT

// Command hot measures the strategies for hot keys against the plain ones: many clients want one product, one
// pair of accounts, or one wallet.
//
// # How it measures
//
// It is a closed loop: each client sends its next request when it has the answer to the last. A request
// that is answered "busy" is sent again under its key, and its latency is counted from the first time. Clients
// start requests for an interval, and the rate is that of all requests over the time until the last answer.
//
// A strategy and its baseline take turns on the same servers, in pairs, and the one that is first
// alternates, since other programs on the machine slow down both. The result is the ratio of the rates of each
// pair: the median of all pairs, and the range without the smallest and the largest. The rates themselves
// depend on the machine.
//
// The processes of a row are separate programs with their own connections. Each has its share of the clients.
//
// After each row the invariants of the flow are checked in the database: a fast wrong answer is no answer.
//
// The services in process have a pool of 32 connections to PostgreSQL, where shop serve has 16, and leases of 10 s,
// where shop serve has 2 s for a product and 5 s for accounts. The queue of a wallet has 4,096 places, where shop serve
// has 128, since all clients are one client, which may have a quarter of the places.
//
// # The cases
//
//	product       purchases of one product, in process: combined against row; alone also against redis+row
//	account       transfers between two accounts in both directions, in process: combined against row; alone also
//	              against etcd-fenced
//	wallet        credits of one wallet, in process, each with a call of a bonus service over loopback HTTP: combined
//	              against lockid with its queue, and without it (lockid-no-queue). The work is a pause in each call
//	many          purchases of 10,000 products, in process: combined against redis+row
//	http-product  purchases of one product over HTTP: combined against an empty POST, and against row
//
// The case lock is measured by loadtest/peers, which is a module of its own: locking/combine against the locks of other
// libraries. It adds its rows to the same file. The targets of all cases are in package bench.
//
// # Over HTTP
//
// Three processes of shop serve get the purchases on loopback. They refuse nothing: there is no --rate-limit and no
// --max-keys, --max-in-flight and --max-per-client are above the number of clients, and --request-timeout is above the
// wait of the last client at the row lock. All other settings are the defaults. vegeta sends the requests as a closed loop: it has
// one worker for each client, no rate, and lets the workers request the replicas in turn. An answer other than 201 is
// an error.
//
// An empty POST is the same request to the same server without the purchase: package api, with its real table of
// clients, all of its middleware (limits, the checks of JSON and of openapi.yaml, metrics, one log line for each
// request), its handler, and an answer of the same form. It has no transaction, no lock and no stored reply. A request
// that is refused, or that is answered from its stored reply, would not do: the first skips a part of
// the server, and the second reads the database. What is left of its rate is what the purchase costs, on cores
// which the servers, the databases and vegeta share.
package main
