// SPDX-License-Identifier: MIT

package transfer

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/transfer"
)

func TestInconclusive_EachFaultOfTheTransfersMustShowItsEvidence(t *testing.T) {
	killed := map[string]int64{"cut_off": 1}
	for _, step := range transfer.Steps() {
		killed["crash_"+string(step)] = 1
	}
	unsafe := func(fault loadtest.Fault) loadtest.Scenario { return New().Control("etcd-unfenced", fault, kept, "T3") }
	sound := func(fault loadtest.Fault) loadtest.Scenario { return New().Safe("etcd-fenced", fault) }
	for _, c := range []struct {
		scenario loadtest.Scenario
		enough   map[string]int64
	}{
		{sound(loadtest.NoFault), map[string]int64{"moved": 1, "short": 1, "holds_posted": 1, "holds_voided": 1, "holds_expired": 1, "samples": 5}},
		{New().Control("naive", loadtest.NoFault, kept, "T3"), nil},
		{New().Control("lease-id-fence", loadtest.NoFault, kept, "T3"), nil},
		{sound(LateWrite), map[string]int64{"late_writes": 1, "late_stopped": 1, "late_refused": 1}},
		{unsafe(LateWrite), map[string]int64{"late_writes": 1, "late_stopped": 1, "late_committed": 1}},
		{sound(loadtest.Pause), map[string]int64{"pauses": 2, "leases_ended": 1}},
		{sound(LeaseRevoked), map[string]int64{"leases_revoked": 5, "stale_answers": 1}},
		{New().Safe(loadtest.Combined, LeaseRevoked), map[string]int64{"leases_revoked": 5}},
		{unsafe(LeaseRevoked), map[string]int64{"leases_revoked": 5}},
		{sound(LeaderKill), map[string]int64{"elections": 1}},
		{sound(NoQuorum), map[string]int64{"quorum_losses": 1, "refused_meanwhile": 1, "lock_calls_after": 1}},
		{sound(PGRestart), map[string]int64{"pg_restarts": 1, "disturbed": 1}},
		{sound(CommitCut), map[string]int64{"commits_cut_before": 1, "commits_cut_after": 1, "decided_after_cut": 1}},
		{New().Safe(loadtest.Combined, CommitCut), map[string]int64{"commits_cut_before": 1, "commits_cut_after": 1, "decided_after_cut": 1, "batches_cut": 5}},
		{sound(loadtest.Crash), killed},
		{New().Control("row", loadtest.PrimaryLostAsync, kept, "I-ACK"), map[string]int64{"done_meanwhile": 10, "done_after": 10, "promotions": 1}},
	} {
		enough := maps.Clone(c.enough)
		if enough == nil {
			enough = map[string]int64{}
		}
		enough["overlaps"] = judge.OverlapsLeast
		watched := map[string]int64{"lock_calls": 1}
		if c.scenario.Fault != loadtest.NoFault {
			enough["hit"] = 1
		}
		if reasons := loadtest.InconclusiveReasons(c.scenario, with(enough, watched)); len(reasons) != 0 {
			t.Errorf("%s: inconclusive although all evidence is there: %v", c.scenario.Name(), reasons)
		}
		for missing := range enough {
			less := maps.Clone(enough)
			less[missing]--
			if reasons := loadtest.InconclusiveReasons(c.scenario, with(less, watched)); len(reasons) != 1 {
				t.Errorf("%s with too few %s: %d reasons %v, want 1", c.scenario.Name(), missing, len(reasons), reasons)
			}
		}
	}
	silent := map[string]int64{"overlaps": judge.OverlapsLeast, "hit": 1, "leases_revoked": 5, "done": 3, "lock_acquired": 3, "fence_refused": 1, "lock_lost": 5}
	if reasons := loadtest.InconclusiveReasons(sound(LeaseRevoked), silent); len(reasons) != 2 {
		t.Errorf("locks and refusals that only the replicas counted: %v", reasons)
	}
}

func with(evidence, more map[string]int64) map[string]int64 {
	all := maps.Clone(evidence)
	maps.Copy(all, more)
	return all
}

var waysToPay = []loadtest.Strategy{
	{Name: "naive", Safe: false, Stores: []string{"postgres"}},
	{Name: "etcd-unfenced", Safe: false, Stores: []string{"etcd", "postgres"}},
	{Name: "etcd-fence-only", Safe: true, Stores: []string{"etcd", "postgres"}},
	{Name: "lease-id-fence", Safe: false, Stores: []string{"etcd", "postgres"}},
	{Name: "row", Safe: true, Stores: []string{"postgres"}},
	{Name: "etcd-fenced", Safe: true, Stores: []string{"etcd", "postgres"}},
}

func TestMatrix_OfTheMoneyHasTheFaultsOfBothStores(t *testing.T) {
	want := []string{
		"naive/none violated", "lease-id-fence/none violated", "token-per-transfer/none violated", "etcd-unfenced/none safe", "etcd-fence-only/none safe", "row/none safe", "etcd-fenced/none safe",
		"etcd-unfenced/late-write violated", "etcd-fence-only/late-write safe", "etcd-fenced/late-write safe",
		"etcd-fence-only/pause safe", "etcd-fenced/pause safe",
		"etcd-unfenced/lease-revoked violated", "etcd-fence-only/lease-revoked safe", "etcd-fenced/lease-revoked safe",
		"etcd-fence-only/leader-kill safe", "etcd-fenced/leader-kill safe", "etcd-fence-only/no-quorum safe", "etcd-fenced/no-quorum safe",
		"etcd-fence-only/pg-restart safe", "row/pg-restart safe", "etcd-fenced/pg-restart safe",
		"etcd-fence-only/commit-cut safe", "row/commit-cut safe", "etcd-fenced/commit-cut safe",
		"etcd-fence-only/crash safe", "row/crash safe", "etcd-fenced/crash safe",
		"etcd-fence-only/all-killed safe", "row/all-killed safe", "etcd-fenced/all-killed safe",
		"etcd-fence-only/standby-gone safe", "row/standby-gone safe", "etcd-fenced/standby-gone safe",
		"etcd-fence-only/primary-lost safe", "row/primary-lost safe", "etcd-fenced/primary-lost safe",
		"etcd-fenced/primary-lost-async violated",
		"naive/crash-matrix violated", "etcd-fenced/crash-matrix safe",
	}
	if diff := cmp.Diff(want, names(New().Matrix(waysToPay))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func names(scenarios []loadtest.Scenario) (names []string) {
	for _, s := range scenarios {
		names = append(names, s.Strategy+"/"+string(s.Fault)+" "+string(s.Expect))
	}
	return names
}

func TestQuick_HasTheControlsEverySafeStrategyAndTheLateWrite(t *testing.T) {
	want := []string{
		"naive/none violated", "lease-id-fence/none violated", "token-per-transfer/none violated", "etcd-fence-only/none safe", "row/none safe", "etcd-fenced/none safe",
		"etcd-unfenced/late-write violated", "etcd-fence-only/late-write safe", "etcd-fenced/late-write safe",
		"etcd-fenced/commit-cut safe",
	}
	matrix := New().Matrix(waysToPay)
	if diff := cmp.Diff(want, names(loadtest.Quick(matrix))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := names(loadtest.Only(matrix, "transfer", "naive", "")); len(got) != 2 {
		t.Errorf("naive alone: %v", got)
	}
}

// Drift is a figure of the report, not an invariant; T3 is an invariant.
func TestJudge_ADriftAloneBreaksNothing(t *testing.T) {
	clean := map[string]int64{"T1": 0, "T3": 0, "drift": 7}
	if verdict, expected := loadtest.Judge(New().Safe("row", loadtest.NoFault), clean, nil); verdict != loadtest.Safe || !expected {
		t.Errorf("%s, %v", verdict, expected)
	}
	broke := map[string]int64{"T3": 2, "T1": 0, "I-LIVE": 4}
	if verdict, expected := loadtest.Judge(New().Control("lease-id-fence", loadtest.NoFault, kept, "T3"), broke, nil); verdict != loadtest.Violated || !expected {
		t.Errorf("%s, %v; I-LIVE is not among the invariants that it must keep", verdict, expected)
	}
	if _, expected := loadtest.Judge(New().Control("lease-id-fence", loadtest.NoFault, kept, "T3"), broke, []string{"no rightful holder was refused"}); expected {
		t.Error("a control that refused no request is as expected")
	}
}
