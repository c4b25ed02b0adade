// Package breaker is a circuit breaker in front of a server: while that gives no
// answer, requests do not each wait for a time-out.
//
//	        no answer                  every Config.Every
//	closed ───────────▶ open ───────────────────────────────▶ half-open: one probe
//	   ▲                 ▲                                      │        │
//	   │                 └────────────── no answer ─────────────┘        │
//	   └──────────────────────────────── an answer ──────────────────────┘
//
// Only the lack of an answer opens it. "Busy" is an answer, and so is a refusal: the
// callers, which call Failed, and the probe decide what an answer is. A probe is a request of
// its own, bounded in time, so that a caller's long wait is not taken for a failure. The state
// machine is that of github.com/sony/gobreaker.
package breaker
