// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"shop/loadtest"
	"shop/locking/invariant"
)

// brokenReport is exampleReport with a violation in its safe scenario.
func brokenReport() loadtest.Report {
	r := exampleReport()
	r.AsExpected = false
	s := &r.Scenarios[1]
	s.Verdict, s.AsExpected = loadtest.Violated, false
	s.Violations = map[string]int64{"S1": 2, "oversold": 2, "I-ONCE": 0}
	s.Findings = invariant.Findings{"S1": {Count: 2, IDs: []string{"drop<00> \x01|", "drop-01"}}}
	s.Inconclusive, s.Hints = []string{"no overlap"}, []string{"set refusals"}
	return r
}

func TestJUnit_ACaseForEachVerdictAndInvariant(t *testing.T) {
	var text bytes.Buffer
	if err := JUnit(&text, brokenReport()); err != nil {
		t.Fatal(err)
	}
	var read testSuites
	if err := xml.Unmarshal(text.Bytes(), &read); err != nil {
		t.Fatal(err, text.String())
	}
	if len(read.Suites) != 2 || read.Failures != 2 || read.Suites[0].Failures != 0 || read.Suites[1].Failures != 2 {
		t.Fatalf("%s", text.String())
	}
	failed := map[string]string{}
	for _, c := range read.Suites[1].Cases {
		if c.Failure != nil {
			failed[c.Name] = c.Failure.Message + "|" + c.Failure.Text
		}
	}
	if !strings.Contains(failed["verdict is safe"], "violated, expected safe|no overlap\nset refusals") || !strings.Contains(failed["stock-balance (S1)"], "drop<00> \uFFFD|\ndrop-01") {
		t.Errorf("%q", failed)
	}
	if read.Tests != len(read.Suites[0].Cases)+len(read.Suites[1].Cases) || strings.Contains(text.String(), `name="oversold"`) {
		t.Errorf("%s", text.String())
	}
}

func TestJUnit_ARunThatWasCalledOffFails(t *testing.T) {
	r := exampleReport()
	r.Planned = 5
	var text bytes.Buffer
	if err := JUnit(&text, r); err != nil || !strings.Contains(text.String(), "called off after 2 of 5") {
		t.Errorf("%v in %s", err, text.String())
	}
}

func TestCI_AWholeProofThatCheckedTooFewOperationsFails(t *testing.T) {
	r := exampleReport()
	r.Checked, r.CheckedLeast = map[string]int{"inventory": 99}, 100
	var junit, summary bytes.Buffer
	if err := errors.Join(JUnit(&junit, r), Summary(&summary, r)); err != nil {
		t.Fatal(err)
	}
	const want = "needs at least 100 operations of inventory"
	if !strings.Contains(junit.String(), `failures="1"`) || !strings.Contains(junit.String(), want) || !strings.Contains(summary.String(), want) {
		t.Errorf("no %q in\n%s\n%s", want, junit.String(), summary.String())
	}
}

func TestSummary_IsATableAndSaysWhatBroke(t *testing.T) {
	var text bytes.Buffer
	if err := Summary(&text, brokenReport()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| inventory/naive/none | violated | ✅ violated | 2 |", "| inventory/redis+row/redis-down | safe | ❌ violated |",
		"- stock-balance (S1): 2", "  - drop&lt;00> ", "- shows nothing: no overlap", "- hint: set refusals",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "inventory/naive/none**") {
		t.Errorf("a control that was caught is explained:\n%s", text.String())
	}
}
