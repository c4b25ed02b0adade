// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"strings"
	"testing"

	"shop/loadtest"
)

// crashed returns a report with a crash matrix of two steps: one cell is violated, one empty, and
// one not tried.
func crashed() loadtest.Report {
	killed, paused := loadtest.CellFault{Kind: loadtest.CellKilled}, loadtest.CellFault{Kind: loadtest.CellPaused}
	lost := loadtest.CellFault{Kind: loadtest.CellCut, Store: "redis", Lost: loadtest.CellAnswersLost}
	flow := &loadtest.Flow{
		Name: "inventory", Number: "oversold", Faults: []loadtest.FaultSpec{{Fault: loadtest.CrashMatrix}},
		Shown: loadtest.Shown{Summary: func(loadtest.Result) string { return "" }},
		Cells: &loadtest.Cells{Steps: []string{"after-guard", "after-commit"}, Stores: []loadtest.CellStore{{Name: "redis"}}},
	}
	r := loadtest.NewResult(flow.Safe("redis+row", loadtest.CrashMatrix), 3)
	r.Cells = []loadtest.Cell{
		{Step: "after-guard", Fault: killed, Verdict: loadtest.CellOK, Evidence: []string{"wait status SIGKILL"}, Seconds: 0.5},
		{Step: "after-guard", Fault: paused, Verdict: loadtest.CellViolated, Why: []string{"S1: cell-001"}, Evidence: []string{"stopped for 1.3 s"}, Seconds: 1.5},
		{Step: "after-commit", Fault: killed, Verdict: loadtest.CellOK},
		{Step: "after-commit", Fault: lost, Verdict: loadtest.CellEmpty, Why: []string{"nothing was lost"}},
	}
	return loadtest.Report{Scenarios: []loadtest.Result{r}, Planned: 1}
}

func TestTable_TheCrashMatrixShowsEachCell(t *testing.T) {
	var text bytes.Buffer
	if err := Table(&text, crashed()); err != nil {
		t.Fatal(err)
	}
	const want = `
inventory, redis+row: 4 cells of the crash matrix in 2 s: 2 ok, 1 violated, 1 empty
step          killed  paused past the TTL  cut from redis, answers lost
after-guard   ok      violated             -
after-commit  ok      -                    empty
  after-guard × paused past the TTL is violated: S1: cell-001
  after-commit × cut from redis, answers lost is empty: nothing was lost
`
	if _, got, _ := strings.Cut(text.String(), "\n\n"); "\n"+got != want {
		t.Errorf("%s", text.String())
	}
}

func TestHTML_TheCrashMatrixShowsEachCellWithItsEvidence(t *testing.T) {
	var page bytes.Buffer
	if err := HTML(&page, crashed()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Crash matrix: redis&#43;row", `<th scope="col" style="white-space:normal">cut from redis, answers lost</th>`,
		`<abbr class="pill safe" title="wait status SIGKILL">ok</abbr>`,
		`<abbr class="pill violated" title="S1: cell-001; stopped for 1.3 s">violated</abbr>`,
		`<abbr class="pill void" title="nothing was lost">empty</abbr>`,
		"<li>after-commit × cut from redis, answers lost is empty: nothing was lost</li>",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("not in the page: %s", want)
		}
	}
}
