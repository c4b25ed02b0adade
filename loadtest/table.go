package loadtest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints the report for people: a table for each flow.
func (r Report) Table(w io.Writer) error {
	for i, group := range r.Groups() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := group.table(w); err != nil {
			return err
		}
	}
	if r.CalledOff() == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, "\nNOT AS EXPECTED: "+r.CalledOff())
	return err
}

// Group is what the scenarios of one flow showed.
type Group struct {
	Flow
	Results []Result
	Several bool // there are other groups
}

// Groups are the scenarios by flow, in the order in which they came.
func (r Report) Groups() (groups []Group) {
	for _, result := range r.Scenarios {
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == result.Flow })
		if i < 0 {
			i, groups = len(groups), append(groups, Group{Flow: flowOf(result.Flow)})
		}
		groups[i].Results = append(groups[i].Results, result)
	}
	for i := range groups {
		groups[i].Several = len(groups) > 1
	}
	return groups
}

func (g Group) table(w io.Writer) error {
	if g.Several {
		fmt.Fprintln(w, g.Name)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "strategy\tfault\texpected\tverdict\t\t%s\trequests\tok\trejected\tunknown\tper s\tp50 ms\tp99 ms\t\n", g.Number)
	for _, s := range g.Results {
		mark := "ok"
		if !s.AsExpected {
			mark = "NOT AS EXPECTED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%.1f\t%.1f\t\n",
			s.Strategy, s.Fault, s.Expect, s.Verdict, mark, s.Violations[g.Number],
			s.Requests, s.OK, s.Rejected, s.Unknown, s.PerSecond, s.P50, s.P99)
	}
	return t.Flush()
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
