package loadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// Report is report/prove.json.
type Report struct {
	Seed       int64    `json:"seed"`
	AsExpected bool     `json:"as_expected"`
	Scenarios  []Result `json:"scenarios"`

	Load    Load                     `json:"-"`
	Calm    time.Duration            `json:"-"` // of the load without a fault; 0: the same
	Bound   map[string]time.Duration `json:"-"` // of I-LIVE, by flow
	When    time.Time                `json:"-"`
	Planned int                      `json:"-"` // scenarios; fewer are there if the run was called off
}

// CalledOff says how far a run came that did not come to its end; else it is empty.
func (r Report) CalledOff() string {
	if len(r.Scenarios) >= r.Planned {
		return ""
	}
	return fmt.Sprintf("called off after %d of %d", len(r.Scenarios), r.Planned)
}

// Result is what one scenario showed. Requests, OK, Rejected and Unknown count
// keys, not attempts; the latencies are those of first attempts.
type Result struct {
	Flow       string           `json:"flow"`
	Strategy   string           `json:"strategy"`
	Fault      Fault            `json:"fault"`
	Replicas   int              `json:"replicas"`
	Expect     Verdict          `json:"expect"`
	Breaks     []string         `json:"breaks"`
	Keeps      []string         `json:"keeps"`
	Verdict    Verdict          `json:"verdict"`
	AsExpected bool             `json:"as_expected"`
	Requests   int              `json:"requests"`
	OK         int              `json:"ok"`
	Rejected   int              `json:"rejected"`
	Unknown    int              `json:"unknown"`
	Violations map[string]int64 `json:"violations"`
	Evidence   map[string]int64 `json:"evidence"`
	PerSecond  float64          `json:"per_second"` // keys decided
	P50        float64          `json:"p50_ms"`
	P99        float64          `json:"p99_ms"`

	Detail `json:"-"`
}

// Detail is what the page shows beside the numbers.
type Detail struct {
	Findings invariant.Findings
	Void     []string // why the run shows nothing
	Stock    int64    // units that were there
	Records  []Record
	Events   []fault.Event
	Epoch    time.Time
	Samples  []Sample
	Oversale *Oversale
	Lasted   time.Duration
	Logs     string
}

// Name of the scenario.
func (r Result) Name() string {
	return Scenario{Flow: r.Flow, Strategy: r.Strategy, Fault: r.Fault}.Name()
}

func newResult(s Scenario, replicas int) Result {
	return Result{
		Flow: s.Flow, Strategy: s.Strategy, Fault: s.Fault, Replicas: replicas,
		Expect: s.Expect, Breaks: list(s.Breaks), Keeps: list(s.Keeps),
	}
}

// count tells the keys apart by what became of them.
func (r *Result) count(records []Record, decided time.Duration) {
	r.Requests = len(records)
	for _, record := range records {
		switch record.Outcome {
		case OK:
			r.OK++
		case Rejected:
			r.Rejected++
		default:
			r.Unknown++
		}
	}
	r.PerSecond = float64(r.OK+r.Rejected) / decided.Seconds()
}

// list is [] in JSON where there is none, not null.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// Write makes prove.json and index.html in a folder, and the whole history of
// what was not as expected.
func (r Report) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "prove.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(folder, "history-*.jsonl"))
	for _, file := range old { // of an earlier run: they would mislead
		_ = os.Remove(file)
	}
	for _, s := range r.Scenarios {
		if s.AsExpected {
			continue
		}
		name := "history-" + strings.ReplaceAll(s.Name(), "/", "-") + ".jsonl"
		if err := create(filepath.Join(folder, name), s.history); err != nil {
			return err
		}
	}
	return create(filepath.Join(folder, "index.html"), r.HTML)
}

// history is every attempt of a scenario, a line each, for whoever looks into it.
func (r Result) history(w io.Writer) error {
	lines := json.NewEncoder(w)
	for _, record := range r.Records {
		for _, attempt := range record.Attempts {
			if err := lines.Encode(attempt); err != nil {
				return err
			}
		}
	}
	return nil
}

func create(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
