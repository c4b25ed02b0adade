// SPDX-License-Identifier: MIT

// Package site runs what is under proof: replicas of the service, a process beside them, and a database of their own.
//
// # The question
//
// What runs, under which address and process id, and where can it be hurt? Faults ask here; what they do is in package
// fault.
//
// # What it promises
//
//	a restarted replica     has its addresses again, and keeps what it has counted (Counters)
//	Kill                    interrupts a request, if there is one within a second: a kill of an idle process shows little
//	the environment         has no effect: all settings are on the command line
//	a process that is left  there is none: KillAll, and Spawn, whose child dies with this process
//	an audit                begins when no other connection is left (WaitQuiet)
//
// No figure that a replica reports of itself is evidence.
package site
