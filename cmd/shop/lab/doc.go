// SPDX-License-Identifier: MIT

// Package lab shows a race. Two strategies of a lesson do the same work for the same clients at the same time, each on
// two replicas, and the stores say what each of them did. `shop serve --lab` shows it as a page, `shop race` runs it
// from the command line.
//
// # A race
//
//	a flow      is a lesson: inventory sells one product, of which the clients want three times the stock; transfer
//	            pays from one account; wallet credits one wallet. One file each: stock.go, money.go, credit.go
//	a client    closed loop: it waits, sends a request with a key of its own, sends the key again after an answer
//	            that is not final, and goes on to the next
//	a lane      is a strategy at a site of its own: a schema (public_race_1, public_race_2) or a database, and locks
//	            with such a prefix
//	a replica   is a service with connections and a lock store of its own, as another process would have
//	work        takes time between the reading and the writing of each request. Without it the window between both
//	            is often too short to see
//	the seed    decides the waits, and for each request how long it works and whether it meets the fault: the same in
//	            both lanes and in each run. Where combined takes a lock or reads, a batch counts as a request.
//	            The stores and the scheduler decide the rest: numbers differ from run to run
//
// The tables of the shop are never touched. The race before is deleted when the next begins, so that its tables can be
// inspected until then. A session advisory lock allows one race at a time in each schema of a shop.
//
// # The faults
//
//	pause  twice, a replica stops at a request that has read: its requests stand still, and its leases, if there are
//	       any, are not renewed. It lasts longer than their TTL. Transfers go on to send what they write, and it
//	       arrives at the end of the pause (link.go): Kleppmann's late write. The second pause is before the read
//	drop   the lock of a request is deleted in the lock store, before it reads or before it writes. Often
//	cut    twice, all connections to what grants the locks are closed, and refused for a second: Redis, etcd, MongoDB
//	kill   once, Redis is ended with SHUTDOWN NOSAVE NOW FORCE at a purchase that has read, which goes on when the
//	       server is back (kill.go). It is the kill of both lanes: a purchase that comes to it later kills nothing
//
// A kill hits all that use the server, so it needs the setting --lab-kill=redis. The lab starts nothing again: in make
// run the supervisor of compose/local does, in a container its restart policy. Whether locks are lost depends on the
// server. That of make run keeps no data: it comes back without the locks, and redis-only oversells. That of
// compose.yaml appends each write to a file: the locks come back too, as long as their TTL lasts. An orderly end loses
// no acknowledged write of such a file, whatever its appendfsync. A server that is not back after backTime is an error
// of the race, beside its verdicts. etcd has no request that ends a member, and the shutdown of MongoDB would end the
// store of the money itself, not a lock before it.
//
// # The verdict
//
// It comes from the stores: from the audit of the lesson, and from the calls that the bonus service has listed. No
// counter of a service is used. Events are what the lock's Observer and the steps of a request report, for the time
// line, and what PostgreSQL answered to a late message.
//
// # Bounds
//
// One race or one measurement at a time; at most clientsMax clients and 3 × sizeMax requests; no request begins after
// beginTime, and all are cancelled after raceTime; a race waits for a killed server for backTime, unless it is
// cancelled. The pages accept requests from their own origin alone, and shop serve allows them on loopback addresses
// only.
//
// # The plots
//
// uPlot draws the curves: uplot/ has the files of the npm package uplot 1.6.32 as they were published, and its licence,
// MIT. It has no time line of locks: lab.js draws that as SVG.
//
// # The other pages
//
// The page of the shop sends requests to the API of its replica, as the customers that shop seed makes, with a key for
// each click. The page of patterns is docs/patterns.md, with a measurement of each lock, guard and piece of work that
// needs nothing but a store of the shop; the other rows say why they have none (unmeasured.go). Its links to code lead
// to the files of the checkout in which the server was started, and are paths elsewhere (code.go).
// A measurement has tables, keys and files of its own: the schemas public_patterns, public_patterns_inventory and
// public_patterns_transfer, the prefix of the locks with -patterns after it, and the collections lab_patterns, lab_guards
// and lab_increments. They stay, and the next measurement uses them again.
package lab
