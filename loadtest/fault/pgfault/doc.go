// Package pgfault does to PostgreSQL, and to what replicas send to it, what operators and
// networks do: it delivers a write when its lock has another holder (LateWrite), and breaks
// connections right before and right after a COMMIT (CommitCut). fault.Restart kills it.
//
// Both act in a Proxy, which a replica gets as its database. It reads what passes
// as segments: what a client sends before it waits for an answer. Package transfer tells
// what each statement does to money (StatementOf).
package pgfault
