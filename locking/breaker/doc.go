// Package breaker is a circuit breaker in front of a server: while that gives no
// answer, requests do not each wait for a time-out.
//
//	        no answer                  every Config.Every
//	closed ───────────▶ open ───────────────────────────────▶ half-open: one probe
//	   ▲                 ▲                                      │        │
//	   │                 └────────────── no answer ─────────────┘        │
//	   └──────────────────────────────── an answer ──────────────────────┘
//
// Only the lack of an answer opens it. "Busy" is an answer, and so is a refusal: what
// is one, the callers decide, who call Failed, and the probe. A probe is a request of
// its own, bounded in time, so that no caller's long wait is taken for one. The state
// machine is that of github.com/sony/gobreaker.
package breaker
