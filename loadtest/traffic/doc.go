// SPDX-License-Identifier: MIT

// Package traffic sends the requests of a plan to a service, and keeps what the clients saw.
//
// # The question
//
// What did the clients ask, when, under which key, and what were they told? The answer must not depend on the service: a
// proof that believes the service proves nothing.
//
// # What it promises
//
//	open loop        each request is sent at its planned time, whether or not others were answered (Attack, by vegeta)
//	one clock        all times are those of one monotonic clock (History)
//	one attempt      a request is written once; net/http repeats nothing behind the Recorder's back
//	every attempt    also that of a connection that broke, or was never made
//	until decided    a key is sent again until its answer is final: OK or Rejected (Run.Retry, Replay)
//	no guess         without an answer the outcome is Unknown, unless nothing was sent: then it is Open (Classify)
//
// # Where to look
//
//	plan.go      Intent, ScheduledRequest, Plan, Load: what will be sent; half of the requests come in bursts, so that they meet
//	recorder.go  an attempt becomes an Attempt
//	history.go   attempts become a Record for each key
//	outcome.go   what an answer means
//	attack.go    the load, by vegeta
//	run.go       the retries, and decided keys once more
//	latency.go   from the planned time, not from the sending (coordinated omission)
package traffic
