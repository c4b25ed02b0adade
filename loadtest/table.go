package loadtest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints the report for people.
func (r Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "strategy\tfault\texpected\tverdict\t\toversold\trequests\tok\trejected\tunknown\tper s\tp50 ms\tp99 ms\t")
	for _, s := range r.Scenarios {
		mark := "ok"
		if !s.AsExpected {
			mark = "NOT AS EXPECTED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%.1f\t%.1f\t\n",
			s.Strategy, s.Fault, s.Expect, s.Verdict, mark, s.Violations["oversold"],
			s.Requests, s.OK, s.Rejected, s.Unknown, s.PerSecond, s.P50, s.P99)
	}
	if err := t.Flush(); err != nil || r.CalledOff() == "" {
		return err
	}
	_, err := fmt.Fprintln(w, "\nNOT AS EXPECTED: "+r.CalledOff())
	return err
}

// sentence sums one result up in a line.
func (r Result) sentence() string {
	flow := flowOf(r.Flow)
	text := fmt.Sprintf("%s: %s", r.Verdict, flow.Told(r))
	if broken := Broken(r.Violations); len(broken) > 0 {
		text += "; broken: " + strings.Join(broken, ", ")
	}
	if n := r.Evidence["guard_tripped"]; n > 0 && r.Expect == Safe {
		text += fmt.Sprintf("; but only the last guard, %s, held it %d times", flow.Guard, n)
	}
	for _, reason := range r.Void {
		text += "; shows nothing: " + reason
	}
	if !r.AsExpected {
		text += fmt.Sprintf(" [expected: %s%s]", r.Expect, r.unmet())
		for _, invariant := range Broken(r.Violations) {
			text += fmt.Sprintf("\n      %s: %d, such as %s", invariant, r.Violations[invariant], strings.Join(r.Findings[invariant].IDs[:min(3, len(r.Findings[invariant].IDs))], "; "))
		}
	}
	return text
}

// unmet says what a control did not do.
func (r Result) unmet() string {
	broken := Broken(r.Violations)
	for _, invariant := range r.Breaks {
		if !slices.Contains(broken, invariant) {
			return ", and " + invariant + " was to break"
		}
	}
	for _, invariant := range r.Keeps {
		if slices.Contains(broken, invariant) {
			return ", but " + invariant + " was to hold"
		}
	}
	return ""
}

// soldUnits is what buyers were promised.
func (r Result) soldUnits() (n int64) {
	for _, record := range r.Records {
		for _, l := range record.Lines {
			switch {
			case record.Outcome == OK && record.Action == Buy:
				n += l.Quantity
			case record.Outcome == OK && record.Action == Cancel:
				n -= l.Quantity
			}
		}
	}
	return n
}
