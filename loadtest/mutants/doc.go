// Command mutants is a gate for the proof itself: it runs prove on services that are wrong
// in one place, and fails when one of them is called safe.
//
// A mutant is a small change of the services, as a unified diff in a folder named after its
// flow. The lines above the diff say what it teaches, and what must catch it:
//
//	teaches: a stock that was computed before the lock puts back what other buyers took
//	scenario: inventory/redis+row/lock-lost
//	invariant: S1
//	prove: --duration 4s
//
// The scenario is one of prove's that must be safe. The invariant is the one that the
// mistake breaks; others may break with it. The last line, more flags for prove, may be
// missing: the load is two seconds then, or as long as the fault needs.
//
// Each diff is applied in a temporary folder and built with go build -overlay, so that
// the tree is not touched. prove loads that program, and what it finds is one of:
//
//	caught     the invariant that the mutant names is broken
//	accident   others are broken, and that one is not: the check for this mistake is missing
//	slipped    nothing is broken: the verdict is safe, or the run shows nothing
//	failed     the diff does not apply, the program does not build, or prove could not run
//
// Everything but "caught" fails the gate. With --unchanged the shop as it is runs first, in
// each scenario that a mutant names: it must be safe, or the scenario would catch any mutant.
//
//	make mutants                          all of them
//	bin/local exec -- bin/mutants --only transfer/expiry-ignored
//	bin/mutants --list
//
// # A new mutant
//
// Change the service, and save what git diff prints as FLOW/NAME.diff, with the lines above
// it. Put the tree back, and run bin/mutants with --only. A mutant is a mistake that a real
// service could have. One that no client and no table can tell from the right service is not
// one: leave it out, and say in the commit why. One that slips is a check that is missing.
package main
