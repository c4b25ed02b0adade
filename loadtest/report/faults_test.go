// SPDX-License-Identifier: MIT

package report

import (
	"maps"
	"strings"
	"testing"

	"shop/loadtest"
	"shop/loadtest/scenario/inventory"
)

// underFault is a report with one safe strategy whose locks were deleted.
func underFault() loadtest.Report {
	r := loadtest.NewResult(inventory.New().Safe("redis+row", inventory.LockLost), 3)
	r.Verdict, r.AsExpected, r.Requests, r.Reads = loadtest.Safe, true, 1366, 3069
	r.Evidence, r.Violations = map[string]int64{"locks_deleted": 977, "overlaps": 5}, map[string]int64{"S1": 0}
	return loadtest.Report{Scenarios: []loadtest.Result{r}}
}

func TestFaults_SaysWhatWasInjectedHowOftenAndWhatHeld(t *testing.T) {
	const safe = "| inventory, redis+row | lock-lost | locks deleted under their holders: 977 | 1,366, 3,069 | safe |\n"
	for name, c := range map[string]struct {
		change func(*loadtest.Result)
		want   string
	}{
		"safe":                    {func(*loadtest.Result) {}, safe},
		"another number":          {func(r *loadtest.Result) { r.Evidence["locks_deleted"] = 1978 }, strings.Replace(safe, "977", "1,978", 1)},
		"nothing was injected":    {func(r *loadtest.Result) { clear(r.Evidence) }, strings.Replace(safe, "locks deleted under their holders: 977", "", 1)},
		"no fault, no line":       {func(r *loadtest.Result) { r.Fault = loadtest.NoFault }, ""},
		"a safe one was violated": {violated(loadtest.Safe, false), strings.Replace(safe, "safe |", "violated: stock-balance (S1), all-sold (I-SOLD), NOT AS EXPECTED |", 1)},
		"a control was caught":    {violated(loadtest.Violated, true), strings.Replace(safe, "safe |", "violated: stock-balance (S1), as it must be |", 1)},
		"a control broke something else": {
			func(r *loadtest.Result) { violated(loadtest.Violated, false)(r); r.Violations["S1"] = 0 },
			strings.Replace(safe, "safe |", "violated: all-sold (I-SOLD), NOT AS EXPECTED |", 1),
		},
		"a control was missed": {
			func(r *loadtest.Result) { r.Expect, r.AsExpected = loadtest.Violated, false },
			strings.Replace(safe, "safe |", "safe, NOT AS EXPECTED |", 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := underFault()
			r.Scenarios[0].Evidence, r.Scenarios[0].Violations = maps.Clone(r.Scenarios[0].Evidence), maps.Clone(r.Scenarios[0].Violations)
			c.change(&r.Scenarios[0])
			var out strings.Builder
			if err := Faults(&out, r); err != nil {
				t.Fatal(err)
			}
			_, lines, _ := strings.Cut(out.String(), "|---|---|---|--:|---|\n")
			if lines != c.want {
				t.Errorf("%s\nwant %s", lines, c.want)
			}
		})
	}
}

func violated(expect loadtest.Verdict, asExpected bool) func(*loadtest.Result) {
	return func(r *loadtest.Result) {
		r.Expect, r.Verdict, r.AsExpected, r.Breaks = expect, loadtest.Violated, asExpected, []string{"S1"}
		r.Violations["S1"], r.Violations["I-SOLD"], r.Violations["oversold"] = 3, 1, 3
	}
}
