// SPDX-License-Identifier: MIT

// Package soak reads gauges of processes and stores for hours, and judges whether each is bounded.
//
// Question: a service that is correct for ten seconds may leak a connection a minute. How does an
// hour of readings show the leak, and distinguish it from noise?
//
// # How
//
// A soak is a sequence of shifts under the same load. Each Source is read every few seconds. The
// readings in the second fifth of the shifts are compared with those in the last fifth:
//
//	before │ 1st fifth │ 2nd fifth │ 3rd │ 4th │ last fifth │ at rest
//	       │ warm-up   │ early     │     │     │ late       │
//
// The late median may exceed the early median by the tolerance of the Gauge: a share of the early
// median plus a slack. A leak that exceeds the tolerance within three fifths of the soak is found;
// a slower leak needs a longer soak. A fifth consists of whole shifts, so a quantity that grows
// during each shift and is purged after it has the same median in every fifth.
//
// While a store is unavailable, pools open more connections and processes start more threads, and
// they keep them afterwards. Such a step may come at any time. Gauges of connections, open files,
// threads, goroutines and sessions are therefore judged to grow only if they rise in every fifth
// after the second.
//
// At rest, after the load has ended and all leases have expired, no lock and no transaction may be
// held. Goroutines, watchers and leases must be back at their number before the load, up to the slack.
//
// A series is void if it has no reading at rest, or if fewer than half of the shifts of either
// fifth have a reading. A void series counts as a failure.
//
// # Where readings come from
//
// Memory, threads and open files are read from /proc; connections, locks and records are counted by
// the servers. Only the number of goroutines cannot be observed from outside: the process reports
// it in /metrics.
package soak
