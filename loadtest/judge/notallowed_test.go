// SPDX-License-Identifier: MIT

package judge

import (
	"slices"
	"strings"
	"testing"

	"shop/loadtest/traffic"
)

func TestHistory_GivenUpKeyIsNotSentAgain(t *testing.T) {
	h := traffic.NewHistory()
	h.Intend(traffic.Intent{Key: "a", GivesUp: true})
	if retry, _ := h.Add(traffic.Attempt{Key: "a", Outcome: traffic.Open, Problem: "busy"}, nil); retry != nil {
		t.Error("a given up key is sent again after busy")
	}
	if got := Undecided(h.Records()); len(got) != 0 {
		t.Errorf("undecided: %v; want none", got)
	}
	h.Intend(traffic.Intent{Key: "b", GivesUp: true})
	if retry, _ := h.Add(traffic.Attempt{Key: "b", Outcome: traffic.Unknown}, nil); retry == nil {
		t.Error("a key of unknown outcome is given up")
	}
}

func TestNotRefused_WhatIsNotAllowedMustBeRefusedForThatReason(t *testing.T) {
	h := traffic.NewHistory()
	for key, a := range map[string]traffic.Attempt{
		"done":      {Outcome: traffic.OK},
		"refused":   {Outcome: traffic.Rejected, Problem: "forbidden"},
		"otherwise": {Outcome: traffic.Rejected, Problem: "out-of-stock"},
		"unknown":   {Outcome: traffic.Unknown},
	} {
		a.Key = key
		h.Intend(traffic.Intent{Key: key, Refusals: []string{"forbidden", "not-found"}})
		h.Add(a, nil)
	}
	if got := NotRefused(h.Records()); len(got) != 3 || slices.ContainsFunc(got, func(s string) bool { return s[:7] == "refused" }) {
		t.Errorf("wrong: %q; want all but the refused", got)
	}
}

func TestRefusedWrites_WhatIsAllowedIsRefusedOnlyForAReasonThatTheFlowKnows(t *testing.T) {
	known := map[traffic.Action][]string{"buy": {"out-of-stock"}}
	h := traffic.NewHistory()
	for _, c := range []struct {
		intent  traffic.Intent
		attempt traffic.Attempt
	}{
		{traffic.Intent{Key: "sold", Action: "buy"}, traffic.Attempt{Outcome: traffic.OK}},
		{traffic.Intent{Key: "sold-out", Action: "buy"}, traffic.Attempt{Outcome: traffic.Rejected, Problem: "out-of-stock"}},
		{traffic.Intent{Key: "invalid", Action: "buy"}, traffic.Attempt{Outcome: traffic.Rejected, Problem: "invalid-request"}},
		{traffic.Intent{Key: "of another action", Action: "cancel"}, traffic.Attempt{Outcome: traffic.Rejected, Problem: "out-of-stock"}},
		{traffic.Intent{Key: "not allowed", Action: "buy", Refusals: []string{"forbidden"}}, traffic.Attempt{Outcome: traffic.Rejected, Problem: "forbidden"}},
		{traffic.Intent{Key: "read", Action: "buy", Reads: true}, traffic.Attempt{Outcome: traffic.Rejected, Problem: "not-found"}},
		{traffic.Intent{Key: "busy", Action: "buy"}, traffic.Attempt{Outcome: traffic.Open, Problem: "busy"}},
	} {
		h.Intend(c.intent)
		c.attempt.Key = c.intent.Key
		h.Add(c.attempt, nil)
	}
	if got := RefusedWrites(h.Records(), known); len(got) != 2 || !strings.HasPrefix(got[0], "invalid: ") || !strings.HasPrefix(got[1], "of another action: ") {
		t.Errorf("%q; want the invalid one, and the one of another action", got)
	}
}

func TestHistory_ReadsMayDiffer(t *testing.T) {
	h := traffic.NewHistory()
	h.Intend(traffic.Intent{Key: "r", Reads: true})
	h.Add(traffic.Attempt{Key: "r", Outcome: traffic.OK}, []byte(`{"stock":2}`))
	h.Add(traffic.Attempt{Key: "r", Outcome: traffic.OK}, []byte(`{"stock":1}`))
	if got := Diverged(h.Records()); len(got) != 0 {
		t.Errorf("diverged: %v; want none", got)
	}
}
