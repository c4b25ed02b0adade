// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"shop/loadtest"
)

// Faults prints a Markdown table of the scenarios with a fault: what was injected and observed, how often, and
// what held. The numbers are the evidence that a run under this fault needs, or it is inconclusive.
func Faults(w io.Writer, r loadtest.Report) error {
	var text strings.Builder
	fmt.Fprintln(&text, "| flow, strategy | fault | injected and observed | requests, reads | result |")
	fmt.Fprintln(&text, "|---|---|---|--:|---|")
	for _, s := range r.Scenarios {
		if s.Fault == loadtest.NoFault {
			continue
		}
		fmt.Fprintf(&text, "| %s, %s | %s | %s | %s, %s | %s |\n", s.Flow, cell(s.Strategy), s.Fault,
			cell(strings.Join(injected(s), "; ")), loadtest.Grouped(int64(s.Requests)), loadtest.Grouped(int64(s.Reads)), cell(held(s)))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// injected lists the evidence that the flow needs of a run under the fault.
func injected(s loadtest.Result) (list []string) {
	flow := s.Scenario.Flow
	for _, spec := range flow.Faults {
		if spec.Fault != s.Fault {
			continue
		}
		for _, need := range spec.Needs {
			means := strings.TrimPrefix(cmp.Or(flow.Explain(need.Evidence), need.Evidence), "of these, ")
			line := fmt.Sprintf("%s: %s", means, loadtest.Grouped(s.Evidence[need.Evidence]))
			if s.Evidence[need.Evidence] > 0 && !slices.Contains(list, line) {
				list = append(list, line)
			}
		}
	}
	return list
}

// held describes the result: that no invariant was broken, or what was.
func held(s loadtest.Result) string {
	text := string(s.Verdict)
	if s.Verdict == loadtest.Violated {
		var broken []string
		for _, i := range (result{s}).Invariants() {
			// A control may break more than it must. What is not as expected is listed whole.
			if i.N > 0 && i.Code != s.Scenario.Flow.Number && (!s.AsExpected || slices.Contains(s.Breaks, i.Code)) {
				broken = append(broken, i.Name)
			}
		}
		text += ": " + strings.Join(broken, ", ")
	}
	switch {
	case !s.AsExpected:
		return text + ", NOT AS EXPECTED"
	case s.Expect == loadtest.Violated:
		return text + ", as it must be"
	}
	return text
}
