package loadtest

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var clean = map[string]int64{"S1": 0, "S2": 0, "I-ACK": 0, "I-REJ": 0, "I-ONCE": 0, "I-WHOLE": 0, "I-LIVE": 0, "I-SOLD": 0, "oversold": 0}

func broken(names ...string) map[string]int64 {
	violations := maps.Clone(clean)
	for _, name := range names {
		violations[name] = 3
	}
	return violations
}

func TestJudge(t *testing.T) {
	naive, lockLost, row := control(inventoryFlow, "naive", NoFault, salesKept, "S1"), control(inventoryFlow, "redis-only", LockLost, salesKept, "S1"), safe(inventoryFlow, "row", NoFault)
	nothingShown := []string{"no overlap"}
	for _, c := range []struct {
		name       string
		scenario   Scenario
		violations map[string]int64
		void       []string
		verdict    Verdict
		asExpected bool
	}{
		{"a safe one that is safe", row, clean, nil, Safe, true},
		{"a safe one that oversells", row, broken("S1", "oversold"), nil, Violated, false},
		{"a safe one that loses an order", row, broken("I-ACK"), nil, Violated, false},
		{"a safe one that sells nothing: everything 503", row, broken("I-LIVE", "I-SOLD"), nil, Violated, false},
		{"a safe one that leaves stock unsold", row, broken("I-SOLD"), nil, Violated, false},
		{"a safe one of which nothing was seen", row, clean, nothingShown, Void, false},
		{"a control that is caught", naive, broken("S1", "S2", "oversold"), nil, Violated, true},
		{"a control that is not caught", naive, clean, nil, Safe, false},
		{"a control that breaks something else", naive, broken("S2"), nil, Violated, false},
		{"a control that breaks what it must keep", naive, broken("S1", "I-ONCE"), nil, Violated, false},
		{"a control whose fault missed", lockLost, clean, nothingShown, Void, false},
		{"a control that broke without its fault", lockLost, broken("S1"), nothingShown, Violated, false},
	} {
		verdict, asExpected := Judge(c.scenario, c.violations, c.void)
		if verdict != c.verdict || asExpected != c.asExpected {
			t.Errorf("%s: %s, as expected %v; want %s, %v", c.name, verdict, asExpected, c.verdict, c.asExpected)
		}
	}
}

func TestVoidReasons_EachFaultMustHaveLandedAndDoneWhatItIsFor(t *testing.T) {
	for _, c := range []struct {
		fault  Fault
		enough map[string]int64
	}{
		{NoFault, map[string]int64{"overlaps": 1}},
		{Crash, map[string]int64{"overlaps": 1, "crashes": 5, "cut_off": 1}},
		{LockLost, map[string]int64{"overlaps": 1, "locks_deleted": 1, "lock_lost": 1}},
		{RedisDown, map[string]int64{"overlaps": 1, "redis_kills": 1, "degraded": 1, "lock_acquired_after": 1}},
	} {
		if reasons := VoidReasons(safe(inventoryFlow, "row", c.fault), c.enough); len(reasons) != 0 {
			t.Errorf("%s: void although all is there: %v", c.fault, reasons)
		}
		for missing := range c.enough {
			less := maps.Clone(c.enough)
			less[missing]--
			if reasons := VoidReasons(safe(inventoryFlow, "row", c.fault), less); len(reasons) != 1 {
				t.Errorf("%s with too few %s: %d reasons %v, want 1", c.fault, missing, len(reasons), reasons)
			}
		}
	}
}

var offered = []Strategy{
	{"naive", false, []string{"postgres"}},
	{"redis-only", false, []string{"redis", "postgres"}},
	{"redis+row", true, []string{"redis", "postgres"}},
	{"row", true, []string{"postgres"}},
}

func names(scenarios []Scenario) []string {
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
		"redis+row/crash safe", "row/crash safe",
	}
	if diff := cmp.Diff(want, names(Inventory.Matrix(offered))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQuick_HasTheControlsEverySafeStrategyAndTheDefaultUnderEachOfItsFaults(t *testing.T) {
	want := []string{
		"naive/none violated", "redis+row/none safe", "row/none safe",
		"redis-only/lock-lost violated", "redis+row/lock-lost safe",
		"redis+row/redis-down safe", "redis+row/crash safe",
	}
	if diff := cmp.Diff(want, names(Quick(Inventory.Matrix(offered)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnly_AnEmptyNameIsAny(t *testing.T) {
	if got := names(Only(Inventory.Matrix(offered), "inventory", "redis+row", "crash")); !cmp.Equal(got, []string{"redis+row/crash safe"}) {
		t.Errorf("%v", got)
	}
	if got := Only(Inventory.Matrix(offered), "", "", ""); len(got) != 9 {
		t.Errorf("%d scenarios, want all 9", len(got))
	}
	if got := Only(Inventory.Matrix(offered), "transfer", "", ""); len(got) != 0 {
		t.Errorf("%v, want none", names(got))
	}
}
