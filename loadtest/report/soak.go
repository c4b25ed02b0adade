// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"shop/loadtest"
	"shop/loadtest/soak"
)

// soakTable prints the series of a soak.
func soakTable(w io.Writer, r loadtest.Report) error {
	if len(r.Series) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nsoak: medians of the readings in the second and in the last fifth of the shifts")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "series\tread in\tbefore\tsecond\tlast\tlimit\tat rest\tlimit\tverdict\t")
	for _, s := range r.Series {
		mark := ""
		if !s.Holds() {
			mark = "NOT AS EXPECTED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", s.Label(), s.From, strings.Join(s.Row(), "\t"), s.Verdict, mark)
	}
	return t.Flush()
}

// watched is a row of the page: a series with its readings as a line.
type watched struct {
	soak.Series
	Line          string
	Width, Height float64
}

// soaked returns the rows of a soak; none without a soak.
func soaked(r loadtest.Report) (rows []watched) {
	const width, height = 110, 26
	for _, s := range r.Series {
		row := watched{Series: s, Width: width, Height: height}
		most, until := 1.0, 1.0
		for _, p := range s.Points {
			most, until = max(most, p.Value), max(until, p.At)
		}
		x, y := scale(0, until, 1, width-1), scale(0, most, height-2, 2)
		var d strings.Builder
		command := "M"
		for _, p := range s.Points {
			fmt.Fprintf(&d, "%s%.1f %.1f", command, x(p.At), y(p.Value))
			command = "L"
		}
		row.Line = d.String()
		rows = append(rows, row)
	}
	return rows
}
