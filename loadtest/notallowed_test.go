// SPDX-License-Identifier: MIT

package loadtest

import (
	"slices"
	"strings"
	"testing"
)

func TestHistory_GivenUpKeyIsNotSentAgain(t *testing.T) {
	h := NewHistory()
	h.Intend(Intent{Key: "a", GivesUp: true})
	if retry, _ := h.Add(Attempt{Key: "a", Outcome: Open, Problem: "busy"}, nil); retry != nil {
		t.Error("a given up key is sent again after busy")
	}
	if got := undecided(h.Records()); len(got) != 0 {
		t.Errorf("undecided: %v; want none", got)
	}
	h.Intend(Intent{Key: "b", GivesUp: true})
	if retry, _ := h.Add(Attempt{Key: "b", Outcome: Unknown}, nil); retry == nil {
		t.Error("a key of unknown outcome is given up")
	}
}

func TestNotRefused_WhatIsNotAllowedMustBeRefusedForThatReason(t *testing.T) {
	h := NewHistory()
	for key, a := range map[string]Attempt{
		"done":      {Outcome: OK},
		"refused":   {Outcome: Rejected, Problem: "forbidden"},
		"otherwise": {Outcome: Rejected, Problem: "out-of-stock"},
		"unknown":   {Outcome: Unknown},
	} {
		a.Key = key
		h.Intend(Intent{Key: key, Refusals: []string{"forbidden", "not-found"}})
		h.Add(a, nil)
	}
	if got := notRefused(h.Records()); len(got) != 3 || slices.ContainsFunc(got, func(s string) bool { return s[:7] == "refused" }) {
		t.Errorf("wrong: %q; want all but the refused", got)
	}
}

func TestRefusedWrites_WhatIsAllowedIsRefusedOnlyForAReasonThatTheFlowKnows(t *testing.T) {
	flow := &Flow{Refuses: map[Action][]string{"buy": {"out-of-stock"}}}
	h := NewHistory()
	for _, c := range []struct {
		intent  Intent
		attempt Attempt
	}{
		{Intent{Key: "sold", Action: "buy"}, Attempt{Outcome: OK}},
		{Intent{Key: "sold-out", Action: "buy"}, Attempt{Outcome: Rejected, Problem: "out-of-stock"}},
		{Intent{Key: "invalid", Action: "buy"}, Attempt{Outcome: Rejected, Problem: "invalid-request"}},
		{Intent{Key: "of another action", Action: "cancel"}, Attempt{Outcome: Rejected, Problem: "out-of-stock"}},
		{Intent{Key: "not allowed", Action: "buy", Refusals: []string{"forbidden"}}, Attempt{Outcome: Rejected, Problem: "forbidden"}},
		{Intent{Key: "read", Action: "buy", Reads: true}, Attempt{Outcome: Rejected, Problem: "not-found"}},
		{Intent{Key: "busy", Action: "buy"}, Attempt{Outcome: Open, Problem: "busy"}},
	} {
		h.Intend(c.intent)
		c.attempt.Key = c.intent.Key
		h.Add(c.attempt, nil)
	}
	if got := flow.refusedWrites(h.Records()); len(got) != 2 || !strings.HasPrefix(got[0], "invalid: ") || !strings.HasPrefix(got[1], "of another action: ") {
		t.Errorf("%q; want the invalid one, and the one of another action", got)
	}
}

func TestHistory_ReadsMayDiffer(t *testing.T) {
	h := NewHistory()
	h.Intend(Intent{Key: "r", Reads: true})
	h.Add(Attempt{Key: "r", Outcome: OK}, []byte(`{"stock":2}`))
	h.Add(Attempt{Key: "r", Outcome: OK}, []byte(`{"stock":1}`))
	if got := diverged(h.Records()); len(got) != 0 {
		t.Errorf("diverged: %v; want none", got)
	}
}
