// SPDX-License-Identifier: MIT

// Package pgfault injects faults between replicas and PostgreSQL: it delivers a write after its
// lock has passed to another holder (LateWrite), and breaks connections right before and right
// after a COMMIT (CommitCut). fault.Restart kills PostgreSQL itself. Standby ends a standby, and its primary.
//
// LateWrite and CommitCut act in a Proxy, whose address a replica gets as its database. The Proxy divides the
// traffic into segments: all that a client sends before it waits for an answer. Package transfer
// defines what each statement does to money (StatementOf).
package pgfault
