// SPDX-License-Identifier: MIT

// Package servertest starts real servers for tests of lock stores and services, and disturbs them. The contract that a
// store must keep is in package locktest, which needs none of it.
//
//	Server   a server for one test, with its own port and data: the test can kill it, pause
//	         it and start it again. It stops with the test process. If it dies by itself,
//	         the test fails within seconds, with its last log lines. Package daemon knows
//	         how each is started, and ends it. WithServer runs servers for all tests of a package.
//	Process  this test binary as another process, in one of the Roles of TestMain: the test
//	         can stop it and kill it.
//	Proxy    forwards TCP: cut connections, refuse new ones, freeze, or inspect each read.
//	Faults   a Proxy that loses, delays and drops single lock requests.
//
// A test waits for an event, or polls until a deadline: there are no sleeps.
package servertest
