// SPDX-License-Identifier: MIT

package loadtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// flip is a state that only one of two writes can change.
type flip bool

func (f flip) Equal(other linear.State) bool { return f == other }
func (flip) String() string                  { return "" }

// done is an attempt that succeeded.
var done = []traffic.Attempt{{Outcome: traffic.OK, Start: 10, End: 20, Status: 200}}

func TestTrial_AnIllegalHistoryBreaksAnInvariantAndIsKeptAndDrawn(t *testing.T) {
	flow := &Flow{Name: "lamp", Linear: func(h linear.History) ([]linear.Partition, error) {
		p := linear.Partition{Object: "the lamp", Start: flip(false)}
		for i := range h.Operations {
			p.Steps = append(p.Steps, linear.NewStep(&h.Operations[i], "turn on").Does(func(s linear.State) (linear.State, bool) { return flip(true), s == flip(false) }))
		}
		return []linear.Partition{p}, nil
	}}
	for _, c := range []struct {
		records []traffic.Record
		broken  int64
	}{
		{[]traffic.Record{{Intent: traffic.Intent{Key: "a"}, Outcome: traffic.OK, Attempts: done}}, 0},
		{[]traffic.Record{{Intent: traffic.Intent{Key: "a"}, Outcome: traffic.OK, Attempts: done}, {Intent: traffic.Intent{Key: "b"}, Outcome: traffic.OK, Attempts: done}}, 1},
	} {
		trial := &Trial{
			Scenario: flow.Safe("row", NoFault), proof: &Proof{Out: t.TempDir()}, Run: &traffic.Run{History: traffic.NewHistory()},
		}
		result := NewResult(trial.Scenario, 2)
		result.Evidence, result.Findings = map[string]int64{}, invariant.Findings{}
		if err := trial.linearize(t.Context(), &result, c.records, Audited{}); err != nil {
			t.Fatal(err)
		}
		if n := result.Findings.Counts()["I-LIN"]; n != c.broken || result.Checked != len(c.records) || len(result.Inconclusive) != 0 {
			t.Errorf("%d violations, want %d: %+v", n, c.broken, result)
		}
		folder := filepath.Join(trial.proof.Out, "lamp-row-none")
		text, err := os.ReadFile(filepath.Join(folder, judge.HistoryFile))
		if err != nil || !strings.Contains(string(text), `"key":"a"`) {
			t.Errorf("%v: %s", err, text)
		}
		if _, err := os.Stat(filepath.Join(folder, "illegal-1.html")); (err == nil) != (c.broken > 0) {
			t.Errorf("a drawing: %v", err)
		}
	}
}

func TestResult_ACheckThatRanOutOrHadNothingToCheckShowsNothingOfASafeScenario(t *testing.T) {
	ranOut := linear.Result{Operations: 1, Undecided: 1, Failures: []linear.Failure{{Partition: linear.Partition{Object: "the lamp"}, Verdict: linear.Undecided, Why: linear.ErrTime}}}
	flow := &Flow{Name: "lamp"}
	for _, c := range []struct {
		scenario Scenario
		reasons  int
	}{{flow.Safe("row", NoFault), 1}, {flow.Control("naive", NoFault, nil, "S1"), 0}} {
		result := NewResult(c.scenario, 2)
		result.Evidence, result.Findings = map[string]int64{}, invariant.Findings{}
		if result.judge(ranOut); len(result.Inconclusive) != c.reasons || result.Findings.Counts()["I-LIN"] != 0 {
			t.Errorf("%s: %q", c.scenario.Name(), result.Inconclusive)
		}
		result.Inconclusive = nil
		if result.judge(linear.Result{Partitions: 1, Legal: 1}); len(result.Inconclusive) != c.reasons {
			t.Errorf("%s, nothing was checked: %q", c.scenario.Name(), result.Inconclusive)
		}
	}
}

func TestLimits_TheCheckOfAControlIsShort(t *testing.T) {
	for _, given := range []time.Duration{0, time.Hour} {
		p := Proof{Limits: linear.Limits{Time: given, Heap: 7}}
		if got := p.limits(Scenario{Expect: Violated}); got.Time != controlTime || got.Heap != 7 {
			t.Errorf("of a control: %+v", got)
		}
		if got := p.limits(Scenario{Expect: Safe}); got != p.Limits {
			t.Errorf("of a safe one: %+v, want %+v", got, p.Limits)
		}
	}
}
