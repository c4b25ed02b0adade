// SPDX-License-Identifier: MIT

// Command mutants tests the proof itself: it runs prove on services with one planted mistake each,
// and fails unless prove finds every mistake.
//
// A mutant is a small change to the services: a unified diff, in a folder named after its
// flow. The lines above the diff state what the mutant teaches, and what must catch it:
//
//	teaches: a stock that was computed before the lock puts back what other buyers took
//	scenario: inventory/redis+row/lock-lost
//	invariant: S1
//	prove: --duration 4s
//
// The scenario is one of prove's, and is expected to be safe. The invariant is the one that the
// mistake breaks; others may break with it. The last line, with further flags for prove, is
// optional; the default load lasts two seconds, or as long as the fault needs.
//
// Each diff is applied by git in a temporary folder and built with go build -overlay, so the
// tree stays unchanged. prove loads the resulting program. The outcome is one of:
//
//	caught     the invariant that the mutant names is broken
//	accident   only other invariants are broken: the check for this mistake is missing
//	slipped    nothing is broken: the verdict is safe, or the run is inconclusive
//	failed     the diff does not apply, the program does not build, or prove cannot run
//
// Any outcome but "caught" fails the run. With --unchanged the unmodified shop runs first, in
// each scenario that a mutant names: unless it is safe, the scenario would catch any mutant.
//
//	make mutants                          all of them
//	bin/local exec -- bin/mutants --only transfer/expiry-ignored
//	bin/mutants --list
//
// # A new mutant
//
// Change the service, save the output of git diff as FLOW/NAME.diff, and add the lines above it.
// Restore the tree, and run bin/mutants with --only. A mutant is a mistake that a real service
// could contain. Leave out a change that neither a client nor a table can observe, and give the
// reason in the commit. A mutant that slips reveals a missing check.
package main
