// SPDX-License-Identifier: MIT

package report

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/cmd/shop/lab/uplot"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/scenario/inventory"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
	"shop/locking/locktest"
)

// exampleReport has a control that was caught, and a safe strategy under a fault.
func exampleReport() loadtest.Report {
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	buyer := func(key string, replica int, start, end time.Duration) traffic.Record {
		return traffic.Record{
			Intent: traffic.Intent{Key: key, Action: inventory.Buy, Of: []inventory.Stock{{SKU: "drop-00", Quantity: 1}}}, Outcome: traffic.OK,
			Attempts: []traffic.Attempt{{Key: key, Replica: replica, Start: start, End: end, Status: 201, Outcome: traffic.OK, Sends: 1}},
		}
	}
	const ms = time.Millisecond
	sales := inventory.New()
	a, b := buyer("a", 0, 10*ms, 20*ms), buyer("b", 1, 12*ms, 22*ms)
	naive := loadtest.NewResult(sales.Controls[0], 3)
	naive.Verdict, naive.AsExpected = loadtest.Violated, true
	naive.Requests, naive.OK, naive.PerSecond, naive.P50, naive.P99 = 2, 2, 950.1, 3.1, 20.5
	naive.Checked = 1234
	naive.Latency.Decided = traffic.Percentiles{N: 2, P50: 3.1, P90: 20.5, P99: 20.5, P999: 20.5, Max: 20.5}
	naive.Violations = map[string]int64{"S1": 1, "oversold": 1, "I-ONCE": 0}
	naive.Evidence = map[string]int64{"overlaps": 2}
	naive.Detail = loadtest.Detail{
		Scenario: naive.Scenario, Plan: traffic.Plan{Given: []inventory.Stock{{SKU: "drop-00", Quantity: 1}}},
		Findings: invariant.Findings{"S1": {Count: 1, IDs: []string{"drop-00<b>"}}}, Records: []traffic.Record{a, b}, Loaded: 2, Epoch: epoch,
		Samples: []judge.Sample{
			{At: 0, Levels: []judge.Level{{Name: "drop-00", Says: 1, True: 1}}},
			{At: 30 * ms, Levels: []judge.Level{{Name: "drop-00", Says: 0, True: -1}}},
		},
		Story: &loadtest.Story{Title: "The first", Text: "There were 1 units of drop-00.", Bars: []loadtest.Bar{
			{Who: "replica 1 sells 1", Then: "1 of 1 sold", Start: a.Attempts[0].Start, End: a.Attempts[0].End},
			{Who: "replica 2 sells 1", Then: "2 of 1 sold", Start: b.Attempts[0].Start, End: b.Attempts[0].End, Over: true},
		}},
	}
	row := loadtest.NewResult(sales.Safe("redis+row", inventory.RedisDown), 3)
	row.Verdict, row.AsExpected, row.Requests, row.OK = loadtest.Safe, true, 1, 1
	row.Violations, row.Evidence = map[string]int64{"S1": 0, "oversold": 0}, map[string]int64{"degraded": 7}
	row.Detail = loadtest.Detail{
		Scenario: row.Scenario, Plan: naive.Plan, Findings: invariant.Findings{}, Records: []traffic.Record{a}, Loaded: 1, Epoch: epoch,
		Events: []fault.Event{{What: "redis killed", At: epoch.Add(100 * ms), Until: epoch.Add(200 * ms), Hits: 1}},
	}
	return loadtest.Report{
		Seed: 1, AsExpected: true, Scenarios: []loadtest.Result{naive, row}, When: epoch, Bound: map[string]time.Duration{"inventory": 4 * time.Second},
		Origin: loadtest.Origin{Command: "prove --quick", Commit: "0123456789ab", Machine: "2 cores", Servers: []string{"Redis 7"}},
		Load:   traffic.Load{Rate: 200, Duration: 6 * time.Second, Seed: 1, Replicas: 3},

		Checked: map[string]int{"inventory": 1234}, CheckedLeast: 1000,
	}
}

// golden is the shape of prove.json on which other programs rely: names, order and types.
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
      "given_up": 0,
      "unknown": 0,
      "reads": 0,
      "checked": 1234,
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
      "p99_ms": 20.5,
      "latency": {
        "decided": {
          "n": 2,
          "p50_ms": 3.1,
          "p90_ms": 20.5,
          "p99_ms": 20.5,
          "p999_ms": 20.5,
          "max_ms": 20.5
        },
        "first_answer": {
          "n": 0,
          "p50_ms": 0,
          "p90_ms": 0,
          "p99_ms": 0,
          "p999_ms": 0,
          "max_ms": 0
        },
        "reads": {
          "n": 0,
          "p50_ms": 0,
          "p90_ms": 0,
          "p99_ms": 0,
          "p999_ms": 0,
          "max_ms": 0
        },
        "lag": {
          "n": 0,
          "p50_ms": 0,
          "p90_ms": 0,
          "p99_ms": 0,
          "p999_ms": 0,
          "max_ms": 0
        }
      }
    },`

func TestWrite_JSONHasExactlyTheShapeThatOthersRead(t *testing.T) {
	folder := t.TempDir()
	if err := Write(folder, exampleReport()); err != nil {
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
	if len(whole.Scenarios) != 2 || len(whole.Scenarios[1]) != 22 {
		t.Errorf("%d scenarios, %d fields in the second; want 2 and 22", len(whole.Scenarios), len(whole.Scenarios[1]))
	}
	if breaks, ok := whole.Scenarios[1]["breaks"].([]any); !ok || len(breaks) != 0 {
		t.Errorf("breaks of a safe scenario: %v, want an empty list and not null", whole.Scenarios[1]["breaks"])
	}
}

func TestWrite_AHistoryIsWrittenWhereTheProofDidNot(t *testing.T) {
	folder := t.TempDir()
	r := exampleReport()
	own := filepath.Join(folder, r.Scenarios[1].Folder(), judge.HistoryFile)
	if err := judge.WriteHistory(own, linear.History{}); err != nil {
		t.Fatal(err)
	}
	if err := Write(folder, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, r.Scenarios[0].Folder(), judge.HistoryFile))
	if err != nil || strings.Count(string(text), "\n") != 4 || !strings.Contains(string(text), `"attempts":[{"replica":1,"start":12000000`) {
		t.Errorf("%v:\n%s", err, text)
	}
	if text, err := os.ReadFile(own); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%v: the history of the proof was written over:\n%s", err, text)
	}
}

func renderHTML(t *testing.T, r loadtest.Report) string {
	t.Helper()
	var page strings.Builder
	if err := HTML(&page, r); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestHTML_ShowsVerdictsFirstThenWhatHappened(t *testing.T) {
	page := renderHTML(t, exampleReport())
	last := -1
	for _, piece := range []string{
		"2 of 2 as expected", "2 scenarios, 3 operations, 1 fault: no violation in 1 safe one, the known-bad one caught.",
		"Checked for linearizability: 1,234 operations of inventory.", "prove --quick", "0123456789ab", "2 cores", "Redis 7", // what was tried
		`<th scope="col">no fault</th><th scope="col">redis-down</th>`, // the matrix
		`<th scope="row">naive</th><td><a class="pill violated" href="#inventory-naive-none">violated</a> <span class="met">✓ control, caught</span></td><td><span class="soft" aria-label="not tried">–</span></td>`,
		`<th scope="row">redis&#43;row</th><td><span class="soft" aria-label="not tried">–</span></td><td><a class="pill safe" href="#inventory-redis-row-redis-down">safe</a> <span class="met">✓</span>`,
		`id="inventory-naive-none"`, "There were 1 units of", "replica 1 sells 1", "1 of 1 sold", "replica 2 sells 1", "2 of 1 sold",
		"Keys of writes decided", "From the planned start of a key", "Units left", "drop-00&lt;b&gt;", // text from outside is escaped
		`title="keys of writes`, "20.5",
		`id="inventory-redis-row-redis-down"`, `"faults":[[0.1,0.2]]`, "redis killed", "No run proves that there is no error",
	} {
		at := strings.Index(page[last+1:], piece)
		if at < 0 {
			t.Fatalf("%q is not on the page, or not where it should be", piece)
		}
		last += 1 + at
	}
}

func TestHTML_IsSelfContained(t *testing.T) {
	page := renderHTML(t, exampleReport())
	if !strings.Contains(page, uplot.JS) || !strings.Contains(page, uplot.CSS) || strings.Count(page, "<script>draw(") != 5 {
		t.Error("the page draws no plots, or not those of two scenarios, of which one has samples")
	}
	page = strings.Replace(page, uplot.JS, "", 1)
	for _, forbidden := range []string{`(?i)https?:`, `(?i)<script[^>]`, `(?i)\bfetch\b`, `(?i)\bimport\b`, `(?i)<link`, `(?i)<img`, `(?i)@import`, `(?i)url\(`, `="//`, `ZgotmplZ`, `NaN`, `Inf\b`} {
		if found := regexp.MustCompile(forbidden).FindString(page); found != "" {
			t.Errorf("%q is on the page", found)
		}
	}
	if !strings.Contains(page, "prefers-color-scheme: dark") {
		t.Error("no dark mode")
	}
}

func TestHTML_ABrowserDrawsEachPlot(t *testing.T) {
	locktest.Slow(t, "it starts a browser")
	file := filepath.Join(t.TempDir(), "index.html")
	const inSightOrNot = `<script>dispatchEvent(new Event("beforeprint"))</script>`
	if err := os.WriteFile(file, []byte(renderHTML(t, exampleReport())+inSightOrNot), 0o600); err != nil {
		t.Fatal(err)
	}
	drawn, err := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--user-data-dir="+t.TempDir(),
		"--dump-dom", file).Output()
	if n := strings.Count(string(drawn), "<canvas"); err != nil || n != 5 {
		t.Errorf("%d plots, want 5 (%v)\nis chromium installed? apt-get install chromium", n, err)
	}
}

func TestHTML_MarksWhatIsNotAsExpected(t *testing.T) {
	r := exampleReport()
	r.AsExpected = false
	r.Scenarios[1].AsExpected, r.Scenarios[1].Verdict, r.Scenarios[1].Inconclusive = false, loadtest.Inconclusive, []string{"Redis was not killed"}
	page := renderHTML(t, r)
	for _, piece := range []string{"1 of 1 safe one inconclusive,", "1 of 2", "✗ expected safe", "shows nothing: Redis was not killed"} {
		if !strings.Contains(page, piece) {
			t.Errorf("%q is not on the page", piece)
		}
	}
}

func TestHTML_ShowsWhatIsThereAtRest(t *testing.T) {
	r := exampleReport()
	r.Scenarios[0].AtRest = []loadtest.Figure{{Name: "replica 1: goroutines", Before: 31, After: 95, Slack: 20}, {Name: "etcd: locks"}}
	const want = "At rest: replica 1: goroutines: 31 before the load, 95 after it, limit 51; etcd: locks: 0 before the load, 0 after it, limit 0.</p>"
	if page := renderHTML(t, r); strings.Count(page, "At rest") != 1 || !strings.Contains(page, want) {
		t.Error("not in the page")
	}
}

func TestHTML_AnEmptyRunCanBeShown(t *testing.T) {
	result := loadtest.NewResult(inventory.New().Safe("row", loadtest.NoFault), 3)
	if page := renderHTML(t, loadtest.Report{Scenarios: []loadtest.Result{result}}); strings.Contains(page, "NaN") || strings.Contains(page, `"lines":null`) {
		t.Error("numbers or lines that are none")
	}
}

func TestTable_MarksWhatIsNotAsExpected(t *testing.T) {
	r := exampleReport()
	r.Scenarios[0].NeedsPause, r.Scenarios[1].AsExpected = true, false
	var table strings.Builder
	if err := Table(&table, r); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(table.String()), "\n")
	if len(rows) != 4 || !strings.Contains(rows[0], " writes ") || !strings.Contains(rows[1], " ok, with a pause ") || !strings.Contains(rows[2], "NOT AS EXPECTED") || rows[3] != writes {
		t.Errorf("%s", table.String())
	}
}

func TestReport_SaysWhichControlNeedsThePause(t *testing.T) {
	r := exampleReport()
	const mark, words = "control, caught with a pause", "needs the pause that widens the race"
	for _, needs := range []bool{false, true} {
		r.Scenarios[0].NeedsPause = needs
		page := renderHTML(t, r)
		if strings.Contains(page, mark) != needs || strings.Contains(page, words) != needs || strings.Contains(r.Scenarios[0].Sentence(), words) != needs {
			t.Errorf("needs it: %t, and the page or the sentence says something else: %s", needs, r.Scenarios[0].Sentence())
		}
	}
}

func TestReport_ARunThatWasCalledOffSaysHowFarItCame(t *testing.T) {
	r := exampleReport()
	r.AsExpected, r.Planned = false, 6
	var table strings.Builder
	if err := Table(&table, r); err != nil {
		t.Fatal(err)
	}
	const off = "called off after 2 of 6"
	if page := renderHTML(t, r); !strings.Contains(table.String(), off) || !strings.Contains(page, off) || !strings.Contains(page, "2 of 6</b> scenarios") {
		t.Errorf("%q is not on the page, or not in the table:\n%s", off, table.String())
	}
}
