// SPDX-License-Identifier: MIT

// Package judge finds in the records of a load what a service did wrong, and what a run shows.
//
// # The question
//
// The clients have a record of each key, the database has rows, and the faults have moments. What follows from them? Each
// function here gets such data and returns a list of what is wrong, in words, or a figure. None asks the service, starts
// anything, or knows which flow it judges.
//
//	live.go        a success must follow each fault soon; no key stays undecided; no refusal without a reason
//	pace.go        the service must keep up with the load, except in outages
//	evidence.go    what a run shows: requests that met, requests that a fault hit, answers that were cut off
//	sample.go      the stored amounts and the computed ones, while the load runs
//	operations.go  records become a history of operations, which package linear checks
//	stored.go      the effects that the database shows
//
// A list that is empty is no proof: the evidence says whether the run could have shown the mistake.
package judge
