// SPDX-License-Identifier: MIT

// Package target proves a service outside of this repository, as a YAML file describes it: its addresses,
// its clients, what they send, what its answers mean, and what must be true afterwards. docs/ci.md is the
// manual.
//
// Question: how does a team find out in its CI, without a line of Go, that its service sells nothing
// twice?
//
//	prove.yaml ──▶ File ──▶ plan, follow-ups ──▶ loadtest.Target ──▶ the service
//	                 │                                 │
//	                 ├──▶ rules: what an answer means ◀┤ answers
//	                 ├──▶ supply, limits: what they say together
//	                 └──▶ audits: SQL and commands, over the answers and the data
//
// Beside the audits in the file, every service must keep these invariants:
//
//   - each key has one effect, by the id in its answers (I-ONCE), and is decided (I-LIVE);
//   - at no time have clients got more units than there were (I-SUPPLY), and no request is refused while
//     enough units are left (I-SOLD): a service that sells one unit and refuses the rest is not safe;
//   - a read shows a number of units that can have been left (I-SHOWN);
//   - a request that is not allowed is refused, with a status that the file lists (I-DENY);
//   - the shares of errors and of busy answers stay within their limits (I-LIMIT).
//
// A run that could not have found anything is inconclusive: it had no success, too few overlaps, nothing that
// sold out, or an audit of empty tables. Hints name the settings that may be wrong.
package target
