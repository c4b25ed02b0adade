// SPDX-License-Identifier: MIT

package loadtest

import "time"

// AllKilled kills all servers of a flow at once. AllKilledAsync is for controls: COMMITs do not wait for the disk of the
// one PostgreSQL, so acknowledged writes are lost.
const (
	AllKilled      Fault = "all-killed"
	AllKilledAsync Fault = "all-killed-async"
)

// How often all are killed, and for how long they are dead. Of the control only a few writes are lost each time: PostgreSQL
// writes a page of its log as soon as it is full.
const (
	AllKilledTimes      = 2
	AllKilledAsyncTimes = 6
	AllKilledDead       = time.Second
)

// AllKilledSpec is AllKilled, or AllKilledAsync. recovery is how long all servers need until something can succeed, and least
// the length of the load in TTLs. slower divides the rate, so that the keys that waited can be caught up with.
func AllKilledSpec(f Fault, recovery time.Duration, least, slower int) FaultSpec {
	times := int64(AllKilledTimes)
	if f == AllKilledAsync {
		times = AllKilledAsyncTimes
	}
	return FaultSpec{Fault: f, Apart: f == AllKilledAsync, Least: least, Slower: slower, Recovery: AllKilledDead + recovery, Outage: true, Needs: []Need{
		{Evidence: "all_killed", Least: times, Why: "not all servers were killed within a second, each time"},
		{Evidence: "disturbed", Why: "no request was affected"},
		{Evidence: "done_after", Least: 10, Why: "fewer than 10 writes succeeded after the fault"},
	}}
}
