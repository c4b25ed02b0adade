// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"shop/loadtest"
)

// cellRow is a row of a crash matrix: one step.
type cellRow struct {
	Step  string
	Cells []*loadtest.Cell // by fault; nil: not tried
}

// CellFaults returns the columns of a crash matrix: the faults that were tried, in the flow's order.
func (r result) CellFaults() (faults []loadtest.CellFault) {
	if len(r.Cells) == 0 {
		return nil
	}
	return slices.DeleteFunc(r.Scenario.Flow.Cells.Faults(), func(f loadtest.CellFault) bool {
		return !slices.ContainsFunc(r.Cells, func(c loadtest.Cell) bool { return c.Fault == f })
	})
}

// CellRows returns the rows of a crash matrix: the steps that were tried.
func (r result) CellRows() (rows []cellRow) {
	faults := r.CellFaults()
	for i := range r.Cells {
		c := &r.Cells[i]
		at := slices.IndexFunc(rows, func(row cellRow) bool { return row.Step == c.Step })
		if at < 0 {
			at, rows = len(rows), append(rows, cellRow{c.Step, make([]*loadtest.Cell, len(faults))})
		}
		if column := slices.Index(faults, c.Fault); column >= 0 {
			rows[at].Cells[column] = c
		}
	}
	return rows
}

// CellNotes lists why cells are violated or empty.
func (r result) CellNotes() (notes []string) {
	for _, c := range r.Cells {
		if c.Verdict != loadtest.CellOK {
			notes = append(notes, fmt.Sprintf("%v is %s: %s", c, c.Verdict, strings.Join(c.Why, "; ")))
		}
	}
	return notes
}

// cellTitle returns why a cell is violated or empty, and its evidence.
func cellTitle(c *loadtest.Cell) string {
	return strings.Join(slices.Concat(c.Why, c.Evidence), "; ")
}

// cellTables prints the crash matrices.
func cellTables(w io.Writer, r loadtest.Report) error {
	for _, of := range r.Scenarios {
		if len(of.Cells) == 0 {
			continue
		}
		shown := result{of}
		fmt.Fprintf(w, "\n%s, %s: %s\n", of.Flow, of.Strategy, of.CellsSentence())
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprint(t, "step")
		for _, f := range shown.CellFaults() {
			fmt.Fprintf(t, "\t%v", f)
		}
		fmt.Fprintln(t)
		for _, row := range shown.CellRows() {
			fmt.Fprint(t, row.Step)
			for _, c := range row.Cells {
				verdict := "-"
				if c != nil {
					verdict = string(c.Verdict)
				}
				fmt.Fprint(t, "\t", verdict)
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, note := range shown.CellNotes() {
			fmt.Fprintln(w, "  "+note)
		}
	}
	return nil
}
