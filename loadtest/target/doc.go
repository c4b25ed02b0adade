// Package target reads a file that says how to prove a service that is not ours: its
// addresses, its clients, what they send, what its answers mean, and what must be true
// afterwards. docs/ci.md is its manual.
//
// Question: how does a team find out in its CI that its service sells nothing twice,
// without a line of Go?
//
//	prove.yaml ──▶ File ──▶ plan, follow-ups ──▶ loadtest.Target ──▶ the service
//	                 │                                 │
//	                 ├──▶ rules: what an answer means ◀┤ answers
//	                 ├──▶ supply, limits: what they say together
//	                 └──▶ audits: SQL and commands, over the answers and the data
//
// Beside what its owner asks for, every service must keep these:
//
//   - one key, one answer (I-ONCE), and every key is decided (I-LIVE);
//   - clients get no more than was there (I-SUPPLY), at any time, and none is refused while enough is
//     left (I-SOLD): a service that sells one unit and refuses the rest is not safe;
//   - a read that shows units shows a number that can have been left (I-SHOWN);
//   - a request that is not allowed is refused, with the status that its owner named (I-DENY);
//   - errors, and answers to come back later, stay within a limit (I-LIMIT).
//
// A run that could not have found anything is inconclusive, and says which setting may be
// wrong: no success, no overlap, nothing sold out, an audit over empty tables.
package target
