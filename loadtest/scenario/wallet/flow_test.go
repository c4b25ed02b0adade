// SPDX-License-Identifier: MIT

package wallet

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
	"shop/loadtest/judge"
	"shop/wallet"
)

func TestInconclusive_EachFaultOfTheWalletsMustShowItsEvidence(t *testing.T) {
	killed := map[string]int64{"cut_off": 1}
	for _, step := range wallet.Steps() {
		killed["crash_"+string(step)] = 1
	}
	sound := func(strategy string, fault loadtest.Fault) loadtest.Scenario { return flow.Safe(strategy, fault) }
	put := map[string]int64{
		"credits": 1, "debits": 1, "payments": 1, "short": 1, "keys_shared": 1, "replayed": 1, "transactions_seen": 1, "samples": 5,
	}
	collided, combined := maps.Clone(put), maps.Clone(put)
	collided["lock_conflicts"], combined["together"] = 1, 3
	for _, c := range []struct {
		scenario loadtest.Scenario
		enough   map[string]int64
	}{
		{sound("inc", loadtest.NoFault), put},
		{sound("lockid", loadtest.NoFault), collided},
		{flow.Controls[0], nil},
		{flow.Controls[1], nil},
		{sound("lockid", StepDown), map[string]int64{"elections": 1, "transactions_open": 1}},
		{sound("lockid", PrimaryPause), map[string]int64{"elections": 1, "transactions_open": 1}},
		{sound("inc", PrimaryPause), map[string]int64{"elections": 1}},
		{sound("lockid", PrimaryKill), map[string]int64{"elections": 1, "rolled_back": 1}},
		{sound("lockid", CommitUnknown), map[string]int64{"commits_cut": 1, "commits_failed": 1, "decided_after_cut": 1}},
		{sound("lockid", loadtest.Pause), map[string]int64{"pauses": 1, "outlived": 1}},
		{sound("lockid", loadtest.Crash), killed},
		{sound("combined", loadtest.NoFault), combined},
		{sound("combined", loadtest.CombinerKilled), map[string]int64{"crashes": 5, "cut_off": 1, "together": 10}},
		{sound("combined", loadtest.CombinerPaused), map[string]int64{"pauses": 2, "outlived": 1, "together": 10}},
		{sound("combined", loadtest.HangUp), map[string]int64{"hung_up": 50, "cut_off": 1, "together": 10}},
		{sound("lockid", crashmatrix.Name), map[string]int64{"cells_hit": 1}},
	} {
		enough := map[string]int64{"overlaps": judge.OverlapsLeast, "mongo_clients": 1}
		maps.Copy(enough, c.enough)
		if c.scenario.Fault != loadtest.NoFault {
			enough["hit"] = 1
		}
		if reasons := loadtest.InconclusiveReasons(c.scenario, enough); len(reasons) != 0 {
			t.Errorf("%s: inconclusive although all evidence is there: %v", c.scenario.Name(), reasons)
		}
		for missing := range enough {
			less := maps.Clone(enough)
			less[missing]--
			if reasons := loadtest.InconclusiveReasons(c.scenario, less); len(reasons) != 1 {
				t.Errorf("%s with too few %s: %d reasons %v, want 1", c.scenario.Name(), missing, len(reasons), reasons)
			}
		}
	}
}

var flow = New(Environment{})

func names(scenarios []loadtest.Scenario) (names []string) {
	for _, s := range scenarios {
		names = append(names, s.Strategy+"/"+string(s.Fault)+" "+string(s.Expect))
	}
	return names
}

var waysToKeepMoney = []loadtest.Strategy{
	{Name: "naive", Safe: false, Stores: []string{"mongo"}},
	{Name: "txn", Safe: false, Stores: []string{"mongo"}},
	{Name: "inc", Safe: true, Stores: []string{"mongo"}},
	{Name: "lockid", Safe: true, Stores: []string{"mongo"}},
	{Name: "combined", Safe: true, Stores: []string{"mongo"}},
}

func TestMatrix_OfTheWalletsHasTheFaultsOfTheirStore(t *testing.T) {
	want := []string{"naive/none violated", "txn/none violated", "constant-lock/none violated", "lock-late/none violated", "naive/crash-matrix violated", "lockid/crash-matrix safe", "combined/combiner-killed safe", "combined/combiner-paused safe", "combined/hang-up safe"}
	for _, fault := range everyFault {
		want = append(want, "inc/"+string(fault)+" safe", "lockid/"+string(fault)+" safe", "combined/"+string(fault)+" safe")
	}
	got := names(flow.Matrix(waysToKeepMoney))
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQuick_OfTheWalletsHasTheControlsAndTheDefault(t *testing.T) {
	want := []string{"naive/none violated", "txn/none violated", "inc/none safe", "lockid/none safe", "combined/none safe", "lockid/commit-unknown safe"}
	if diff := cmp.Diff(want, names(loadtest.Quick(flow.Matrix(waysToKeepMoney)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlow_TheLivenessBoundAllowsForAnElection(t *testing.T) {
	plain := judge.LiveBound(2 * time.Second)
	for _, fault := range everyFault {
		want := plain
		if fault == StepDown || fault == PrimaryPause || fault == PrimaryKill {
			want += failOverTime
		}
		if fault == loadtest.AllKilled {
			want += time.Second + 2*failOverTime
		}
		if got := flow.Bound(fault, 2*time.Second); got != want {
			t.Errorf("%s: %v, want %v", fault, got, want)
		}
	}
}

func TestJudge_AControlThatCallsTheBonusServiceInVainKeepsTheBalances(t *testing.T) {
	txn := flow.Controls[1]
	asked := map[string]int64{"W-SIDE": 40, "M2": 0, "drift": 0, "W-WIRE": 9}
	if verdict, expected := loadtest.Judge(txn, asked, nil); verdict != loadtest.Violated || !expected {
		t.Errorf("%s, %v", verdict, expected)
	}
	for _, kept := range []string{"M1", "M2", "M3", "I-ONCE"} {
		lost := maps.Clone(asked)
		lost[kept] = 1
		if _, expected := loadtest.Judge(txn, lost, nil); expected {
			t.Errorf("a control that also breaks %s is as expected", kept)
		}
	}
	if _, expected := loadtest.Judge(txn, map[string]int64{"W-SIDE": 0}, nil); expected {
		t.Error("a control without a call in vain is as expected")
	}
}
