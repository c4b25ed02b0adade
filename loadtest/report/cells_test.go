// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"strings"
	"testing"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
)

// crashed returns a report with a crash matrix of two steps: one cell is violated, one empty, and
// one not tried.
func crashed() loadtest.Report {
	killed, paused := crashmatrix.Fault{Kind: crashmatrix.Killed}, crashmatrix.Fault{Kind: crashmatrix.Paused}
	lost := crashmatrix.Fault{Kind: crashmatrix.Cut, Store: "redis", Lost: crashmatrix.Answers}
	flow := &loadtest.Flow{
		Name: "inventory", Number: "oversold", Faults: []loadtest.FaultSpec{{Fault: crashmatrix.Name}},
		Shown: loadtest.Shown{Summary: func(loadtest.Result) string { return "" }},
	}
	r := loadtest.NewResult(flow.Safe("redis+row", crashmatrix.Name), 3)
	r.Cells = crashmatrix.Results{
		{Step: "after-guard", Fault: killed, Verdict: crashmatrix.OK, Evidence: []string{"wait status SIGKILL"}, Seconds: 0.5},
		{Step: "after-guard", Fault: paused, Verdict: crashmatrix.Violated, Why: []string{"S1: cell-001"}, Evidence: []string{"stopped for 1.3 s"}, Seconds: 1.5},
		{Step: "after-commit", Fault: killed, Verdict: crashmatrix.OK},
		{Step: "after-commit", Fault: lost, Verdict: crashmatrix.Empty, Why: []string{"nothing was lost"}},
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
