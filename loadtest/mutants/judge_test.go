// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shop/loadtest"
)

func TestJudge_OnlyTheNamedInvariantCatches(t *testing.T) {
	m, err := parseMutant("inventory/wrong", wrong)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		report string
		word   word
		text   string
	}{
		{`{"flow": "inventory", "verdict": "violated", "violations": {"S1": 2, "S2": 1, "I-ACK": 0, "oversold": 7}}`, caught, "S1, S2"},
		{`{"flow": "inventory", "verdict": "violated", "violations": {"S1": 0, "I-LIVE": 1}}`, accident, "I-LIVE, and not S1"},
		{`{"flow": "inventory", "verdict": "safe", "violations": {"S1": 0}}`, slipped, "verdict safe"},
		{`{"flow": "inventory", "verdict": "void", "violations": {"S1": 0}}`, slipped, "verdict void"},
		{`{"flow": "inventory", "verdict": "safe", "violations": {"oversold": 7}}`, slipped, "verdict safe"}, // oversold is a figure, not an invariant
	} {
		found, err := readFinding(planted(t, `{"scenarios": [`+c.report+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		if j := m.judge(found); j.word != c.word || !strings.Contains(j.text, c.text) {
			t.Errorf("%s: %+v, want %s with %q", c.report, j, c.word, c.text)
		}
		if want := c.word == caught; m.judge(found).word.good() != want {
			t.Errorf("%s: the run passes: %v", c.report, !want)
		}
	}
}

func TestUnchanged_MustBeSafe(t *testing.T) {
	if j := unchanged(loadtest.Result{Verdict: "safe"}); !j.word.good() {
		t.Errorf("%+v", j)
	}
	for _, verdict := range []string{"violated", "void"} {
		found, err := readFinding(planted(t, `{"scenarios": [{"flow": "inventory", "verdict": "`+verdict+`", "violations": {"S2": 1}}]}`))
		if j := unchanged(found); err != nil || j.word != failed || !strings.Contains(j.text, "S2") {
			t.Errorf("%s: %+v, %v", verdict, j, err)
		}
	}
}

func TestReadFinding_NeedsAReportOfOneScenario(t *testing.T) {
	for _, text := range []string{`{"scenarios": []}`, `{"scenarios": [{}, {}]}`, `no JSON`} {
		if f, err := readFinding(planted(t, text)); err == nil {
			t.Errorf("%s: %+v", text, f)
		}
	}
	if _, err := readFinding(filepath.Join(t.TempDir(), "prove.json")); err == nil {
		t.Error("a missing report was read")
	}
}

func planted(t *testing.T, report string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prove.json")
	if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
