// SPDX-License-Identifier: MIT

package loadtest

import (
	"time"

	"shop/loadtest/fault"
)

// AllKilled kills all servers of a flow at once. AllKilledAsync is for controls: COMMITs do not wait for the disk of the
// one PostgreSQL, so acknowledged writes are lost.
const (
	AllKilled      Fault = "all-killed"
	AllKilledAsync Fault = "all-killed-async"
)

// How often all are killed, and for how long they are dead. Of the control only a few writes are lost each time: PostgreSQL
// writes a page of its log as soon as it is full.
const (
	allKilledTimes      = 2
	allKilledAsyncTimes = 6
	allKilledDead       = time.Second
)

// AllKilledSpec is AllKilled, or AllKilledAsync, of all private servers of a setup. recovery is how long they need until
// something can succeed, and least the length of the load in TTLs. slower divides the rate, so that the keys that waited can be
// caught up with.
func AllKilledSpec(f Fault, recovery time.Duration, least, slower int, s Setup) FaultSpec {
	times := allKilledTimes
	if s.Async = f == AllKilledAsync; s.Async {
		times = allKilledAsyncTimes
	}
	s.Inject = func(servers Servers, _ *Trial) (fault.Fault, error) {
		all := fault.AllKilled{Times: times, Dead: allKilledDead}
		for _, kind := range s.Private() {
			members, err := servers.Members(kind)
			if err != nil {
				return nil, err
			}
			for _, m := range members {
				all.Servers = append(all.Servers, m.Server)
			}
		}
		return all, nil
	}
	return FaultSpec{Fault: f, Setup: s, Apart: f == AllKilledAsync, Least: least, Slower: slower, Recovery: allKilledDead + recovery, Outage: true, Needs: []Need{
		{Evidence: "all_killed", Least: int64(times), Why: "not all servers were killed within a second, each time"},
		{Evidence: "disturbed", Why: "no request was affected"},
		{Evidence: "done_after", Least: 10, Why: "fewer than 10 writes succeeded after the fault"},
	}}
}
