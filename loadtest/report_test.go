package loadtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// exampleReport has a control that was caught, and a safe one under a fault.
func exampleReport() Report {
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	buyer := func(key string, replica int, start, end time.Duration) Record {
		return Record{
			Intent: Intent{Key: key, Action: Buy, Lines: []Stock{{"drop-00", 1}}}, Outcome: OK,
			Attempts: []Attempt{{Key: key, Replica: replica, Start: start, End: end, Status: 201, Outcome: OK, Sends: 1}},
		}
	}
	const ms = time.Millisecond
	a, b := buyer("a", 0, 10*ms, 20*ms), buyer("b", 1, 12*ms, 22*ms)
	naive := newResult(control(inventoryFlow, "naive", NoFault, salesKept, "S1"), 3)
	naive.Verdict, naive.AsExpected = Violated, true
	naive.Requests, naive.OK, naive.PerSecond, naive.P50, naive.P99 = 2, 2, 950.1, 3.1, 20.5
	naive.Violations = map[string]int64{"S1": 1, "oversold": 1, "I-ONCE": 0}
	naive.Evidence = map[string]int64{"overlaps": 2}
	naive.Detail = Detail{
		Findings: invariant.Findings{"S1": {Count: 1, IDs: []string{"drop-00<b>"}}}, Stock: 1, Records: []Record{a, b}, Epoch: epoch,
		Samples:  []Sample{{0, []Level{{"drop-00", 1, 1}}}, {30 * ms, []Level{{"drop-00", 0, -1}}}},
		Oversale: &Oversale{"drop-00", 1, []Sale{{"a", 1, 1, a.Attempts[0]}, {"b", 1, 2, b.Attempts[0]}}},
	}
	row := newResult(safe(inventoryFlow, "redis+row", RedisDown), 3)
	row.Verdict, row.AsExpected, row.Requests, row.OK = Safe, true, 1, 1
	row.Violations, row.Evidence = map[string]int64{"S1": 0, "oversold": 0}, map[string]int64{"degraded": 7}
	row.Detail = Detail{
		Findings: invariant.Findings{}, Stock: 1, Records: []Record{a}, Epoch: epoch,
		Events: []fault.Event{{What: "redis killed", At: epoch.Add(100 * ms), Until: epoch.Add(200 * ms), Hits: 1}},
	}
	return Report{
		Seed: 1, AsExpected: true, Scenarios: []Result{naive, row}, When: epoch, Bound: map[string]time.Duration{"inventory": 4 * time.Second},
		Load: Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3},
	}
}

// golden is the shape that others read: names, order and types.
const golden = `{
  "seed": 1,
  "as_expected": true,
  "scenarios": [
    {
      "flow": "inventory",
      "strategy": "naive",
      "fault": "none",
      "replicas": 3,
      "expect": "violated",
      "breaks": [
        "S1"
      ],
      "keeps": [
        "I-ACK",
        "I-REJ",
        "I-ONCE",
        "I-WHOLE"
      ],
      "verdict": "violated",
      "as_expected": true,
      "requests": 2,
      "ok": 2,
      "rejected": 0,
      "unknown": 0,
      "violations": {
        "I-ONCE": 0,
        "S1": 1,
        "oversold": 1
      },
      "evidence": {
        "overlaps": 2
      },
      "per_second": 950.1,
      "p50_ms": 3.1,
      "p99_ms": 20.5
    },`

func TestWrite_JSONHasExactlyTheShapeThatOthersRead(t *testing.T) {
	folder := t.TempDir()
	if err := exampleReport().Write(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "prove.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden, string(text)[:min(len(text), len(golden))]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var whole struct{ Scenarios []map[string]any }
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	if len(whole.Scenarios) != 2 || len(whole.Scenarios[1]) != 18 {
		t.Errorf("%d scenarios, %d fields in the second; want 2 and 18", len(whole.Scenarios), len(whole.Scenarios[1]))
	}
	if breaks, ok := whole.Scenarios[1]["breaks"].([]any); !ok || len(breaks) != 0 {
		t.Errorf("breaks of a safe scenario: %v, want an empty list and not null", whole.Scenarios[1]["breaks"])
	}
}

func TestWrite_KeepsTheHistoryOfWhatIsNotAsExpected(t *testing.T) {
	folder := t.TempDir()
	r := exampleReport()
	r.Scenarios[0].AsExpected = false
	if err := r.Write(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "history-inventory-naive-none.jsonl"))
	if err != nil || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), `"key":"b","replica":1,"start":12000000`) {
		t.Errorf("%v:\n%s", err, text)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "history-*")); len(files) != 1 {
		t.Errorf("%v, want only that one", files)
	}
}

func renderHTML(t *testing.T, r Report) string {
	t.Helper()
	var page strings.Builder
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestHTML_ShowsVerdictsFirstThenWhatHappened(t *testing.T) {
	page := renderHTML(t, exampleReport())
	last := -1
	for _, piece := range []string{
		"2 of 2 as expected", `href="#inventory-naive-none"`, "control, caught", `href="#inventory-redis-row-redis-down"`, // the table
		`id="inventory-naive-none"`, "There were 1 units of", "replica 1 sells 1", "1 of 1 sold", "replica 2 sells 1", "2 of 1 sold",
		"Latency of every request", "Units left", "drop-00&lt;b&gt;", // what is from outside is escaped
		`id="inventory-redis-row-redis-down"`, `class="band"`, "redis killed", "No tool passes anything",
	} {
		at := strings.Index(page[last+1:], piece)
		if at < 0 {
			t.Fatalf("%q is not on the page, or not where it should be", piece)
		}
		last += 1 + at
	}
}

func TestHTML_NeedsNothingFromOutside(t *testing.T) {
	page := renderHTML(t, exampleReport())
	for _, forbidden := range []string{`(?i)https?:`, `(?i)<script`, `(?i)<link`, `(?i)<img`, `(?i)@import`, `(?i)url\(`, `="//`, `ZgotmplZ`, `NaN`, `Inf\b`} {
		if found := regexp.MustCompile(forbidden).FindString(page); found != "" {
			t.Errorf("%q is on the page", found)
		}
	}
	if !strings.Contains(page, "prefers-color-scheme: dark") {
		t.Error("no dark mode")
	}
}

func TestHTML_SaysSoWhenSomethingIsNotAsExpected(t *testing.T) {
	r := exampleReport()
	r.AsExpected = false
	r.Scenarios[1].AsExpected, r.Scenarios[1].Verdict, r.Scenarios[1].Void = false, Void, []string{"Redis was not killed"}
	page := renderHTML(t, r)
	for _, piece := range []string{"Something is not as expected", "1 of 2", "expected safe", "shows nothing: Redis was not killed"} {
		if !strings.Contains(page, piece) {
			t.Errorf("%q is not on the page", piece)
		}
	}
}

func TestHTML_AnEmptyRunCanBeShown(t *testing.T) {
	result := newResult(safe(inventoryFlow, "row", NoFault), 3)
	if page := renderHTML(t, Report{Scenarios: []Result{result}}); strings.Contains(page, "NaN") {
		t.Error("numbers that are none")
	}
}

func TestTable_MarksWhatIsNotAsExpected(t *testing.T) {
	r := exampleReport()
	r.Scenarios[1].AsExpected = false
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(table.String()), "\n")
	if len(rows) != 3 || !strings.Contains(rows[1], " ok ") || !strings.Contains(rows[2], "NOT AS EXPECTED") {
		t.Errorf("%s", table.String())
	}
}
