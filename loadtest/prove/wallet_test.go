// SPDX-License-Identifier: MIT

package main

import (
	"testing"

	"shop/loadtest"
)

// At a low rate a machine that other tests keep busy still keeps up with the load.
func TestProve_WalletsOfRealReplicasAreLoadedAndAudited(t *testing.T) {
	report := proven(t, "--flow", "wallet", "--strategy", "lockid", "--fault", "none", "--replicas", "2", "--duration", "6s", "--rate", "40")
	s := report.Scenarios[0]
	if !report.AsExpected || s.Verdict != loadtest.Safe || s.Requests < 100 || s.OK+s.Rejected+s.GivenUp != s.Requests || s.Violations["W-SIDE"] != 0 {
		t.Errorf("%+v", s)
	}
	for _, invariant := range []string{"M1", "M1-DURING", "M2", "M3", "W-SIDE", "W-WIRE", "I-ACK", "I-REJ", "I-ONCE", "I-RIGHT", "I-SPENT", "I-LIVE"} {
		if _, looked := s.Violations[invariant]; !looked {
			t.Errorf("%s was not checked", invariant)
		}
	}
}

func TestProve_TheControlThatCallsTheBonusServiceInVainIsCaught(t *testing.T) {
	report := proven(t, "--flow", "wallet", "--strategy", "txn", "--fault", "none", "--replicas", "2", "--duration", "6s", "--rate", "100")
	if s := report.Scenarios[0]; s.Violations["W-SIDE"] == 0 || s.Violations["M2"] != 0 {
		t.Errorf("%+v", s)
	}
}
