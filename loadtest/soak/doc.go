// Package soak watches quantities for hours, and judges whether each of them is bounded.
//
// Question: a service that is right for ten seconds may leak a connection a minute. How is that
// found in an hour, and told from noise?
//
// # How
//
// A soak is a row of shifts, each with the same load. Every few seconds each Source is read. The
// readings of the shifts of the second fifth are compared with those of the last fifth:
//
//	before │ 1st fifth │ 2nd fifth │ 3rd │ 4th │ last fifth │ at rest
//	       │ warm-up   │ early     │     │     │ late       │
//
// The median of the late readings must not exceed that of the early ones by more than the
// tolerance of the Gauge, which is a share and a slack. So a leak is found that adds up to the
// tolerance within three fifths of the soak; a slower one needs a longer soak. The fifths are
// whole shifts: what grows during a shift and is purged behind it has the same median in each.
//
// A pool that opened more connections while a store was away, and a process that started threads
// meanwhile, keep them: a step, which comes at any time. So connections, open files, threads,
// goroutines and sessions grow only if they rise in each fifth behind the second one.
//
// At rest, when the load has ended and all leases have run out, nothing may be held: no lock, no
// transaction; and what was started for requests must be gone again, up to the slack.
//
// A series that was not read in half of the shifts of a fifth shows nothing, and is no success.
//
// # Where readings come from
//
// Memory, threads and open files are those of /proc; connections, locks and records are what the
// servers count. Only the number of goroutines cannot be had from outside: it is what the process
// says in /metrics.
package soak
