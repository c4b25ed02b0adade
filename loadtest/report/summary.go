// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"shop/loadtest"
)

// Summary writes a report in Markdown, for the summary of a GitHub Actions run: a table of the verdicts,
// and the findings of each scenario that is not as expected.
func Summary(w io.Writer, r loadtest.Report) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "### prove: %s\n\n", r.Headline())
	if checked := r.Linearized(); checked != "" {
		fmt.Fprintf(&text, "%s\n\n", cell(checked))
	}
	fmt.Fprintln(&text, "| scenario | expected | verdict | writes | ok | rejected | unknown | overlaps | per s | p99 ms |")
	fmt.Fprintln(&text, "|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, s := range r.Scenarios {
		mark := "✅"
		if !s.AsExpected {
			mark = "❌"
		}
		fmt.Fprintf(&text, "| %s | %s | %s %s | %d | %d | %d | %d | %d | %.0f | %.1f |\n",
			cell(s.Name()), s.Expect, mark, s.Verdict, s.Requests, s.OK, s.Rejected, s.Unknown, s.Evidence["overlaps"], s.PerSecond, s.P99)
	}
	for _, s := range r.Scenarios {
		if !s.AsExpected {
			explain(&text, result{s})
		}
	}
	if _, err := w.Write(append(text.Bytes(), '\n')); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// explain lists the broken invariants, and why a run shows nothing.
func explain(text *bytes.Buffer, r result) {
	fmt.Fprintf(text, "\n**%s**\n\n", cell(r.Name()))
	for _, reason := range r.Inconclusive {
		fmt.Fprintf(text, "- shows nothing: %s\n", cell(reason))
	}
	for _, i := range r.Invariants() {
		if i.N == 0 || i.Code == r.Scenario.Flow.Number {
			continue
		}
		fmt.Fprintf(text, "- %s: %d", cell(i.Name), i.N)
		if i.Means != "" {
			fmt.Fprintf(text, " (%s)", cell(i.Means))
		}
		ids := r.Findings[i.Code].IDs
		for _, id := range ids[:min(3, len(ids))] {
			fmt.Fprintf(text, "\n  - %s", cell(id))
		}
		fmt.Fprintln(text)
	}
	for _, hint := range r.Hints {
		fmt.Fprintf(text, "- hint: %s\n", cell(hint))
	}
}

// cell escapes a text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|", "<", "&lt;", "*", "\\*", "`", "\\`").Replace(text)
}
