package loadtest

import (
	"slices"
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

func TestHistory_ReadsMayDiffer(t *testing.T) {
	h := NewHistory()
	h.Intend(Intent{Key: "r", Reads: true})
	h.Add(Attempt{Key: "r", Outcome: OK}, []byte(`{"stock":2}`))
	h.Add(Attempt{Key: "r", Outcome: OK}, []byte(`{"stock":1}`))
	if got := diverged(h.Records()); len(got) != 0 {
		t.Errorf("diverged: %v; want none", got)
	}
}
