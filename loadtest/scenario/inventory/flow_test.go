// SPDX-License-Identifier: MIT

package inventory

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest"
	"shop/loadtest/judge"
)

func TestInconclusive_EachFaultMustShowItsEvidence(t *testing.T) {
	for _, c := range []struct {
		fault  loadtest.Fault
		enough map[string]int64
	}{
		{loadtest.NoFault, map[string]int64{"overlaps": judge.OverlapsLeast, "samples": 5}},
		{loadtest.Crash, map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "crashes": 5, "cut_off": 1}},
		{LockLost, map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "locks_deleted": 50}},
		{RedisDown, map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "redis_kills": 1, "done_meanwhile": 10, "lock_calls_after": 1}},
		{RedisFailover, map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "redis_failovers": failovers, "two_holders": 1, "lock_calls_after": 1}},
		{loadtest.StandbyGone, map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "commits_waited": 1, "outcome_unknown": 1, "done_after": 10}},
		{loadtest.PrimaryLost, map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "commits_waited": 1, "outcome_unknown": 1, "done_after": 10, "promotions": 1}},
	} {
		if reasons := loadtest.InconclusiveReasons(New().Safe("row", c.fault), c.enough); len(reasons) != 0 {
			t.Errorf("%s: inconclusive although all evidence is there: %v", c.fault, reasons)
		}
		for missing := range c.enough {
			less := maps.Clone(c.enough)
			less[missing]--
			if reasons := loadtest.InconclusiveReasons(New().Safe("row", c.fault), less); len(reasons) != 1 {
				t.Errorf("%s with too few %s: %d reasons %v, want 1", c.fault, missing, len(reasons), reasons)
			}
		}
	}
}

var offered = []loadtest.Strategy{
	{Name: "naive", Safe: false, Stores: []string{"postgres"}},
	{Name: "redis-only", Safe: false, Stores: []string{"redis", "postgres"}},
	{Name: "redis+row", Safe: true, Stores: []string{"redis", "postgres"}},
	{Name: "row", Safe: true, Stores: []string{"postgres"}},
}

func names(scenarios []loadtest.Scenario) []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Strategy+"/"+string(s.Fault)+" "+string(s.Expect))
	}
	return names
}

func TestMatrix_IsEveryControlAndEverySafeStrategyUnderTheFaultsOfItsStores(t *testing.T) {
	want := []string{
		"naive/none violated", "redis-only/none safe", "redis+row/none safe", "row/none safe",
		"redis-only/lock-lost violated", "redis+row/lock-lost safe",
		"redis+row/redis-down safe",
		"redis-only/redis-failover violated", "redis+row/redis-failover safe",
		"redis+row/crash safe", "row/crash safe",
		"redis+row/all-killed safe", "row/all-killed safe", "row/all-killed-async violated",
		"redis+row/standby-gone safe", "row/standby-gone safe", "redis+row/primary-lost safe", "row/primary-lost safe",
		"redis+row/primary-lost-async violated",
		"naive/crash-matrix violated", "redis+row/crash-matrix safe",
	}
	if diff := cmp.Diff(want, names(New().Matrix(offered))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQuick_HasTheControlsEverySafeStrategyAndTheDefaultUnderEachOfItsFaults(t *testing.T) {
	want := []string{
		"naive/none violated", "redis+row/none safe", "row/none safe",
		"redis-only/lock-lost violated", "redis+row/lock-lost safe",
		"redis+row/redis-down safe", "redis+row/crash safe",
	}
	if diff := cmp.Diff(want, names(loadtest.Quick(New().Matrix(offered)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnly_AnEmptyNameIsAny(t *testing.T) {
	if got := names(loadtest.Only(New().Matrix(offered), "inventory", "redis+row", "crash")); !cmp.Equal(got, []string{"redis+row/crash safe"}) {
		t.Errorf("%v", got)
	}
	if got := loadtest.Only(New().Matrix(offered), "", "", ""); len(got) != 21 {
		t.Errorf("%d scenarios, want all 21", len(got))
	}
	if got := loadtest.Only(New().Matrix(offered), "transfer", "", ""); len(got) != 0 {
		t.Errorf("%v, want none", names(got))
	}
}
