// SPDX-License-Identifier: MIT

package loadtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Report is report/prove.json.
type Report struct {
	Seed       int64    `json:"seed"`
	AsExpected bool     `json:"as_expected"`
	Scenarios  []Result `json:"scenarios"`
	Origin     Origin   `json:"origin"`

	Checked      map[string]int `json:"checked,omitempty"`       // operations of each flow that were checked for linearizability
	CheckedLeast int            `json:"checked_least,omitempty"` // how many are needed of each flow

	Load    traffic.Load             `json:"-"`
	Calm    time.Duration            `json:"-"` // length of the load without a fault; 0: the same
	Bound   map[string]time.Duration `json:"-"` // of I-LIVE, by flow
	When    time.Time                `json:"-"`
	Planned int                      `json:"-"` // number of scenarios; Scenarios has fewer if the run was called off
}

// Origin describes how a report was made.
type Origin struct {
	Command string   `json:"command"` // without secrets
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Servers []string `json:"servers"` // with their versions
}

// CalledOff describes how many scenarios ran before a run was called off; "" if all ran.
func (r Report) CalledOff() string {
	if len(r.Scenarios) >= r.Planned {
		return ""
	}
	return fmt.Sprintf("called off after %d of %d", len(r.Scenarios), r.Planned)
}

// Result is the result of one scenario. Requests, OK, Rejected, GivenUp and Unknown count keys of writes,
// not attempts. P50 and P99 are those of Latency.Decided: of the same keys, from the planned start to the
// decision.
type Result struct {
	Flow       string           `json:"flow"`
	Strategy   string           `json:"strategy"`
	Fault      Fault            `json:"fault"`
	Seed       int64            `json:"seed,omitempty"`   // its own seed; 0: the report's
	Repeat     string           `json:"repeat,omitempty"` // the command that runs the scenario again
	Replicas   int              `json:"replicas"`
	Expect     Verdict          `json:"expect"`
	Breaks     []string         `json:"breaks"`
	Keeps      []string         `json:"keeps"`
	NeedsPause bool             `json:"needs_pause,omitempty"` // a control that has the pause that widens the race; others have none
	Verdict    Verdict          `json:"verdict"`
	AsExpected bool             `json:"as_expected"`
	Requests   int              `json:"requests"`
	OK         int              `json:"ok"`
	Rejected   int              `json:"rejected"`
	GivenUp    int              `json:"given_up"`
	Unknown    int              `json:"unknown"`
	Reads      int              `json:"reads"`   // that were answered
	Checked    int              `json:"checked"` // operations that were checked for linearizability
	Violations map[string]int64 `json:"violations"`
	Evidence   map[string]int64 `json:"evidence"`
	PerSecond  float64          `json:"per_second"` // keys decided
	P50        float64          `json:"p50_ms"`
	P99        float64          `json:"p99_ms"`
	Latency    traffic.Latency  `json:"latency"`
	Cells      any              `json:"cells,omitempty"`   // what an Experiment found
	AtRest     []Figure         `json:"at_rest,omitempty"` // of a Nemesis: before the load and after it
	Hints      []string         `json:"hints,omitempty"`   // of a Target: settings that may be wrong
	Again      []string         `json:"again,omitempty"`   // this is the second run: why the first one showed nothing

	Detail `json:"-"`
}

// Detail is what the page of the report shows beside the numbers.
type Detail struct {
	Scenario     Scenario
	Plan         traffic.Plan
	Findings     invariant.Findings
	Inconclusive []string // why the run shows nothing
	Missed       []string // of these, what did not happen in the run: a second run may show it
	Records      []traffic.Record
	Loaded       int // how many of Records are of the load: those after them are the postcheck's
	Events       []fault.Event
	Epoch        time.Time
	Samples      []judge.Sample
	Story        *Story
	Sent         vegeta.Results // vegeta's own results for the requests of the plan
	Files        []string       // in the scenario's folder
	summed       string         // see Slim
}

// Name is the name of the scenario.
func (r Result) Name() string {
	return seeded(scenarioName(r.Flow, r.Strategy, r.Fault), r.Seed)
}

// Folder is the folder of the scenario's files, relative to that of the report.
func (r Result) Folder() string { return r.Scenario.Folder() }

// NewResult returns the result of a scenario before it runs.
func NewResult(s Scenario, replicas int) Result {
	return Result{
		Detail: Detail{Scenario: s},
		Flow:   s.Flow.Name, Strategy: s.Strategy, Fault: s.Fault, Seed: s.Seed, Replicas: replicas,
		Expect: s.Expect, Breaks: list(s.Breaks), Keeps: list(s.Keeps), NeedsPause: s.Pause,
	}
}

// measure counts the keys of the load by outcome, and computes the latencies.
func (r *Result) measure(records []traffic.Record, decided time.Duration) {
	r.Reads = len(judge.Keys(records, func(r traffic.Record) bool { return r.Reads && r.Outcome.Final() }))
	r.GivenUp = len(judge.Keys(records, func(r traffic.Record) bool { return r.Abandoned() }))
	r.Loaded = len(records)
	r.Requests, r.OK, r.Rejected = tally(records)
	r.Unknown = r.Requests - r.OK - r.Rejected - r.GivenUp
	r.PerSecond = float64(r.OK+r.Rejected) / decided.Seconds()
	r.Latency = traffic.LatencyOf(records, decided)
	r.P50, r.P99 = r.Latency.Decided.P50, r.Latency.Decided.P99
}

// tally counts the keys of writes, and how many of them succeeded and were refused.
func tally(records []traffic.Record) (keys, ok, rejected int) {
	var t tallied
	for i := range records {
		t.add(&records[i])
	}
	return t.keys, t.ok, t.rejected
}

type tallied struct{ keys, ok, rejected int }

func (t *tallied) add(r *traffic.Record) {
	if r.Reads {
		return
	}
	t.keys++
	switch r.Outcome {
	case traffic.OK:
		t.ok++
	case traffic.Rejected:
		t.rejected++
	}
}

// list returns an empty list for nil, so that JSON has [] and not null.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// Sentence sums the result up in a line. If the result is not as expected, a line for each broken
// invariant follows.
func (r Result) Sentence() string {
	flow := r.Scenario.Flow
	text := fmt.Sprintf("%s: %s", r.Verdict, r.summary())
	if r.Cells != nil {
		text += fmt.Sprintf("; %v", r.Cells)
	}
	if broken := flow.Broken(r.Violations); len(broken) > 0 {
		text += "; broken: " + flow.names(broken)
	}
	if n := r.Evidence["guard_tripped"]; n > 0 && r.Expect == Safe {
		text += fmt.Sprintf("; the last guard, %s, had to refuse %d writes", flow.Guard, n)
	}
	if r.NeedsPause {
		text += "; needs the pause that widens the race"
	}
	for _, reason := range r.Inconclusive {
		text += "; shows nothing: " + reason
	}
	for _, reason := range r.Again {
		text += "; the second run, since the first one showed nothing: " + reason
	}
	if !r.AsExpected {
		text += fmt.Sprintf(" [expected: %s%s]", r.Expect, r.unmet())
		for _, invariant := range flow.Broken(r.Violations) {
			text += fmt.Sprintf("\n      %s: %d, such as %s", flow.names([]string{invariant}), r.Violations[invariant], strings.Join(r.Findings[invariant].IDs[:min(3, len(r.Findings[invariant].IDs))], "; "))
		}
	}
	return text
}

// unmet describes how a control differs from what it must break and keep.
func (r Result) unmet() string {
	broken := r.Scenario.Flow.Broken(r.Violations)
	for _, invariant := range r.Breaks {
		if !slices.Contains(broken, invariant) {
			return ", and " + r.Scenario.Flow.names([]string{invariant}) + " broken"
		}
	}
	for _, invariant := range r.Keeps {
		if slices.Contains(broken, invariant) {
			return ", and " + r.Scenario.Flow.names([]string{invariant}) + " kept"
		}
	}
	return ""
}

// names lists the names of some invariants, with their codes.
func (f *Flow) names(codes []string) string {
	var names []string
	for _, code := range codes {
		names = append(names, invariant.Find(f.AllInvariants(), code).String())
	}
	return strings.Join(names, ", ")
}

// Met counts the scenarios that are as expected.
func (r Report) Met() (n int) {
	for _, s := range r.Scenarios {
		if s.AsExpected {
			n++
		}
	}
	return n
}

// All counts the scenarios, including those that did not run because the run was called off.
func (r Report) All() int { return max(len(r.Scenarios), r.Planned) }

// Foreign reports whether the report is of a Target.
func (r Report) Foreign() bool { return len(r.Scenarios) > 0 && r.Scenarios[0].Flow == TargetFlow }
