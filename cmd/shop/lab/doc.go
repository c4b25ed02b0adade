// Package lab shows a race. Two strategies sell the same stock to the same buyers at the same time, each on two
// replicas, and PostgreSQL counts what each of them sold. `shop serve --lab` shows it as a page, `shop race` runs it
// from the command line.
//
// # A race
//
//	buyers      closed loop: each waits, buys one unit with a key of its own, sends the key again after "busy",
//	            and goes on to the next. Together they want three times the stock
//	a strategy  has a schema of its own (public_race_1, public_race_2) with one product, and two replicas
//	a replica   is an inventory.Service with a pool and a lock store of its own, as another process would have
//	a pause     between the reading and the writing of each purchase, as real work takes. Without it the window
//	            between both is often too short to see
//	the seed    decides the waits, the pauses, and which purchases meet the fault. PostgreSQL, Redis and the
//	            scheduler decide the rest: numbers differ from run to run
//
// The tables of the shop are never touched. The race before is deleted when the next begins, so that its tables can be
// inspected until then. A session advisory lock allows one race at a time in each schema of a shop.
//
// # The faults
//
//	pause  at a purchase that holds its lock and has read the stock, its replica stops for longer than the TTL: its
//	       purchases stand still, and its leases are not renewed. Twice
//	drop   the key of the lock is deleted in Redis, while a purchase holds it and has read the stock. Often
//
// # The verdict
//
// It comes from the tables: orders against opening stock, and the invariants of inventory.Audit. No counter of a
// service is used. Events are what the lock's Observer and the steps of a purchase report, for the time line.
//
// # Bounds
//
// One race or one measurement at a time; at most clientsMax buyers and 3 × stockMax purchases; no purchase begins after buyTime, and
// all are cancelled after raceTime. The pages accept requests from their own origin alone, and shop serve allows them on
// loopback addresses only.
//
// # The other pages
//
// The page of the shop sends requests to the API of its replica, as the customers that shop seed makes, with a key for
// each click. The page of patterns is docs/patterns.md, with a measurement of each lock that needs nothing but a store.
// A measurement has tables, keys and files of its own: the schema public_patterns, the prefix of the locks with
// -patterns after it, and the collection lab_patterns. They stay, and the next measurement uses them again.
package lab
