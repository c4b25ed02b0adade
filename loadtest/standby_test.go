// SPDX-License-Identifier: MIT

package loadtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

func TestUnreplicated_AreTheWritesThatWereSentAndAcknowledgedWhileTheStandbyWasAway(t *testing.T) {
	const second = time.Second
	history := traffic.NewHistory()
	record := func(key string, outcome traffic.Outcome, stored, reads bool, moments ...time.Duration) traffic.Record {
		r := traffic.Record{Intent: traffic.Intent{Key: key, Reads: reads}, Outcome: outcome}
		for n := 0; n+1 < len(moments); n += 2 {
			r.Attempts = append(r.Attempts, traffic.Attempt{Start: moments[n], End: moments[n+1], Outcome: traffic.Unknown})
		}
		last := &r.Attempts[len(r.Attempts)-1]
		last.Outcome, last.Stored = outcome, stored
		return r
	}
	records := []traffic.Record{
		record("at once", traffic.OK, false, false, 3*second, 3*second+1),
		record("by a retry", traffic.OK, false, false, 3*second, 5*second, 5*second, 6*second),
		record("refused, and stored", traffic.Rejected, true, false, 3*second, 4*second),
		record("refused, not stored", traffic.Rejected, false, false, 3*second, 4*second),
		record("sent before", traffic.OK, false, false, 1*second, 3*second, 3*second, 4*second),
		record("decided after", traffic.OK, false, false, 3*second, 5*second, 5*second, 9*second),
		record("undecided", traffic.Unknown, false, false, 3*second, 5*second),
		record("a read", traffic.OK, false, true, 3*second, 4*second),
	}
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{}, Fault: StandbyGone}, Run: &traffic.Run{History: history},
		events: []fault.Event{{At: history.Epoch.Add(2 * second), Until: history.Epoch.Add(8 * second)}},
	}
	if diff := cmp.Diff([]string{"at once", "by a retry", "refused, and stored"}, r.unreplicated(records)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Scenario.Fault = PrimaryLost
	findings := invariant.Findings{}
	r.judged(findings, records)
	if found, judged := findings[ReplicatedInvariant.Code]; judged {
		t.Errorf("under primary-lost, where the database shows what was lost: %v", found)
	}
}

func TestDurable_LeavesOutReadsThatMayShowWhatTheLostPrimaryHad(t *testing.T) {
	history := traffic.NewHistory()
	record := func(reads bool, start, end time.Duration) traffic.Record {
		return traffic.Record{Intent: traffic.Intent{Reads: reads}, Outcome: traffic.OK, Attempts: []traffic.Attempt{{Start: start, End: end, Outcome: traffic.OK, Sends: 1}}}
	}
	records := []traffic.Record{record(true, 1, 3), record(true, 3, 9), record(true, 9, 10), record(false, 3, 4)}
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{}, Fault: PrimaryLost}, Run: &traffic.Run{History: history},
		events: []fault.Event{{At: history.Epoch.Add(2), Until: history.Epoch.Add(8)}},
	}
	var left []traffic.Outcome
	for _, d := range r.durable(records) {
		left = append(left, d.Outcome)
	}
	if diff := cmp.Diff([]traffic.Outcome{traffic.Unknown, traffic.Unknown, traffic.OK, traffic.OK}, left); diff != "" || records[0].Outcome != traffic.OK {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Scenario.Fault = PrimaryLostAsync
	if r.durable(records)[0].Outcome != traffic.OK {
		t.Error("under a control a read is left out")
	}
}
