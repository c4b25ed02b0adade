package loadtest

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVoidReasons_EachFaultOfTheMoneyMustHaveLandedAndDoneWhatItIsFor(t *testing.T) {
	killed := map[string]int64{"cut_off": 1}
	for _, step := range moneySteps {
		killed["crash_"+step] = 1
	}
	unsafe := func(fault Fault) Scenario { return moneyControl("etcd-unfenced", fault) }
	sound := func(fault Fault) Scenario { return safe(transferFlow, "etcd-fenced", fault) }
	for _, c := range []struct {
		scenario Scenario
		enough   map[string]int64
	}{
		{sound(NoFault), map[string]int64{"moved": 1, "short": 1, "holds_posted": 1, "holds_voided": 1, "holds_expired": 1, "samples": 1}},
		{moneyControl("naive", NoFault), nil},
		{moneyControl("lease-id-fence", NoFault), nil},
		{sound(LateWrite), map[string]int64{"late_writes": 1, "late_stopped": 1, "late_refused": 1}},
		{unsafe(LateWrite), map[string]int64{"late_writes": 1, "late_stopped": 1, "late_committed": 1}},
		{sound(Pause), map[string]int64{"pauses": 2, "lock_lost": 1}},
		{sound(LeaseRevoked), map[string]int64{"leases_revoked": 5, "fence_refused": 1}},
		{unsafe(LeaseRevoked), map[string]int64{"leases_revoked": 5}},
		{sound(LeaderKill), map[string]int64{"elections": 1}},
		{sound(NoQuorum), map[string]int64{"quorum_losses": 1, "unavailable": 1, "lock_acquired_after": 1}},
		{sound(PGRestart), map[string]int64{"pg_restarts": 1}},
		{sound(CommitCut), map[string]int64{"commits_cut_before": 1, "commits_cut_after": 1, "ambiguous": 1, "resolved": 1}},
		{sound(Crash), killed},
	} {
		enough := maps.Clone(c.enough)
		if enough == nil {
			enough = map[string]int64{}
		}
		enough["overlaps"] = 1
		if reasons := VoidReasons(c.scenario, enough); len(reasons) != 0 {
			t.Errorf("%s: void although all is there: %v", c.scenario.Name(), reasons)
		}
		for missing := range enough {
			less := maps.Clone(enough)
			less[missing]--
			if reasons := VoidReasons(c.scenario, less); len(reasons) != 1 {
				t.Errorf("%s with too few %s: %d reasons %v, want 1", c.scenario.Name(), missing, len(reasons), reasons)
			}
		}
	}
	forgotten := map[string]int64{"overlaps": 1, "commits_cut_before": 1, "commits_cut_after": 1, "ambiguous": 3, "resolved": 1, "outcome_unknown": 1}
	if reasons := VoidReasons(sound(CommitCut), forgotten); len(reasons) != 1 {
		t.Errorf("a COMMIT without an answer that nobody was told of: %v", reasons)
	}
}

var waysToPay = []Strategy{
	{"naive", false, []string{"postgres"}},
	{"etcd-unfenced", false, []string{"etcd", "postgres"}},
	{"etcd-fence-only", true, []string{"etcd", "postgres"}},
	{"lease-id-fence", false, []string{"etcd", "postgres"}},
	{"row", true, []string{"postgres"}},
	{"etcd-fenced", true, []string{"etcd", "postgres"}},
}

func TestMatrix_OfTheMoneyHasTheFaultsOfBothStores(t *testing.T) {
	want := []string{
		"naive/none violated", "lease-id-fence/none violated", "etcd-unfenced/none safe", "etcd-fence-only/none safe", "row/none safe", "etcd-fenced/none safe",
		"etcd-unfenced/late-write violated", "etcd-fence-only/late-write safe", "etcd-fenced/late-write safe",
		"etcd-fence-only/pause safe", "etcd-fenced/pause safe",
		"etcd-unfenced/lease-revoked violated", "etcd-fence-only/lease-revoked safe", "etcd-fenced/lease-revoked safe",
		"etcd-fence-only/leader-kill safe", "etcd-fenced/leader-kill safe", "etcd-fence-only/no-quorum safe", "etcd-fenced/no-quorum safe",
		"etcd-fence-only/pg-restart safe", "row/pg-restart safe", "etcd-fenced/pg-restart safe",
		"etcd-fence-only/commit-cut safe", "row/commit-cut safe", "etcd-fenced/commit-cut safe",
		"etcd-fence-only/crash safe", "row/crash safe", "etcd-fenced/crash safe",
	}
	if diff := cmp.Diff(want, names(Transfer.Matrix(waysToPay))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestQuick_ChoosesFromBothFlows(t *testing.T) {
	want := []string{
		"naive/none violated", "redis+row/none safe", "row/none safe",
		"redis-only/lock-lost violated", "redis+row/lock-lost safe",
		"redis+row/redis-down safe", "redis+row/crash safe",

		"naive/none violated", "lease-id-fence/none violated", "etcd-fence-only/none safe", "row/none safe", "etcd-fenced/none safe",
		"etcd-unfenced/late-write violated", "etcd-fence-only/late-write safe", "etcd-fenced/late-write safe",
		"etcd-fenced/commit-cut safe",
	}
	both := append(Inventory.Matrix(offered), Transfer.Matrix(waysToPay)...)
	if diff := cmp.Diff(want, names(Quick(both))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := names(Only(both, "transfer", "naive", "")); len(got) != 1 {
		t.Errorf("naive of one flow alone: %v", got)
	}
}

// A drift is what an owner feels, and no invariant: T3 is.
func TestJudge_ADriftAloneBreaksNothing(t *testing.T) {
	clean := map[string]int64{"T1": 0, "T3": 0, "drift": 7}
	if verdict, expected := Judge(safe(transferFlow, "row", NoFault), clean, nil); verdict != Safe || !expected {
		t.Errorf("%s, %v", verdict, expected)
	}
	broke := map[string]int64{"T3": 2, "T1": 0, "I-LIVE": 4}
	if verdict, expected := Judge(moneyControl("lease-id-fence", NoFault), broke, nil); verdict != Violated || !expected {
		t.Errorf("%s, %v; I-LIVE is nothing that it must keep", verdict, expected)
	}
	if _, expected := Judge(moneyControl("lease-id-fence", NoFault), broke, []string{"no rightful holder was refused"}); expected {
		t.Error("it refused nobody, and is as expected")
	}
}
