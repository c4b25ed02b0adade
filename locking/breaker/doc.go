// SPDX-License-Identifier: MIT

// Package breaker is a circuit breaker in front of a server: while the server does not
// answer, requests are refused at once instead of waiting for a time-out each.
//
//	        no answer                  every Config.Every
//	closed ───────────▶ open ───────────────────────────────▶ half-open: one probe
//	   ▲                 ▲                                      │        │
//	   │                 └────────────── no answer ─────────────┘        │
//	   └──────────────────────────────── an answer ──────────────────────┘
//
// Only the lack of an answer opens the breaker; "busy" and a refusal are answers. The
// probe, and the callers of Failed, decide what counts as an answer. A probe is a separate
// request, bounded in time, so that a caller's long wait is not taken for a failure. The
// state machine is that of github.com/sony/gobreaker.
package breaker
