// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
)

// CrashMatrix returns the cells of a crash matrix; none under another fault.
func (r result) CrashMatrix() crashmatrix.Results {
	cells, _ := r.Cells.(crashmatrix.Results)
	return cells
}

// cellTables prints the crash matrices.
func cellTables(w io.Writer, r loadtest.Report) error {
	for _, of := range r.Scenarios {
		cells := result{of}.CrashMatrix()
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s, %s: %v\n", of.Flow, of.Strategy, cells)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprint(t, "step")
		for _, f := range cells.Faults() {
			fmt.Fprintf(t, "\t%v", f)
		}
		for _, step := range cells.Steps() {
			fmt.Fprint(t, "\n", step)
			for _, f := range cells.Faults() {
				fmt.Fprint(t, "\t", cells.At(step, f).Verdict)
			}
		}
		fmt.Fprintln(t)
		if err := t.Flush(); err != nil {
			return err
		}
		for _, note := range cells.Notes() {
			fmt.Fprintln(w, "  "+note)
		}
	}
	return nil
}
