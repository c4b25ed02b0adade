package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"shop/loadtest"
)

// Table prints the report for people: a table for each flow.
func Table(w io.Writer, r loadtest.Report) error {
	for i, group := range groups(r) {
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

// group is what the scenarios of one flow showed.
type group struct {
	*loadtest.Flow
	Results []result
	Several bool // there are other groups
}

// result is drawn by its methods.
type result struct{ loadtest.Result }

// groups are the scenarios by flow, in the order in which they came.
func groups(r loadtest.Report) (groups []group) {
	for _, of := range r.Scenarios {
		i := slices.IndexFunc(groups, func(g group) bool { return g.Name == of.Flow })
		if i < 0 {
			i, groups = len(groups), append(groups, group{Flow: of.Scenario.Flow})
		}
		groups[i].Results = append(groups[i].Results, result{of})
	}
	for i := range groups {
		groups[i].Several = len(groups) > 1
	}
	return groups
}

func (g group) table(w io.Writer) error {
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
