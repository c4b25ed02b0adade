// SPDX-License-Identifier: MIT

package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Stdin, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run prints the rows of benchstat's CSV, and writes them to a file.
func run(in io.Reader, out io.Writer, files []string) error {
	if len(files) != 1 {
		return errors.New("want one argument, the file for the rows")
	}
	results, err := read(in)
	if err != nil {
		return err
	}
	rows := compare(results)
	text, err := json.MarshalIndent(rows, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(files[0]), 0o755)
	}
	if err == nil {
		err = os.WriteFile(files[0], append(text, '\n'), 0o644)
	}
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(table, r)
	}
	return table.Flush()
}

// result is what benchstat says of one benchmark.
type result struct {
	benchmark string // without the parts that say what it measured
	of        string // a strategy or a lock; "": it is compared with nothing
	against   string // "": it is no ratio
	figures   map[string]median
}

// median is that of all runs. Its interval of 95 % is from value*(1-within) to value*(1+within).
type median struct{ value, within float64 }

// parts are those of the name of a benchmark, before the number of CPUs.
var parts = regexp.MustCompile(`^(.*?)(?:/(?:strategy|lock)=([^/]+?))?(?:/against=([^/]+?))?(?:-\d+)?$`)

// read reads the tables of benchstat -format csv, one for each unit.
func read(in io.Reader) (results []*result, err error) {
	lines := csv.NewReader(in)
	lines.FieldsPerRecord, lines.LazyQuotes = -1, true
	for unit := ""; ; {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		switch {
		case err != nil:
			return nil, err
		case len(line) < 3 || line[0] == "geomean":
			continue
		case line[0] == "":
			unit = line[1]
			continue
		}
		name := parts.FindStringSubmatch(line[0])
		i := slices.IndexFunc(results, func(r *result) bool { return r.benchmark == name[1] && r.of == name[2] && r.against == name[3] })
		if i < 0 {
			i = len(results)
			results = append(results, &result{name[1], name[2], name[3], map[string]median{}})
		}
		m := median{within: 1} // benchstat says ∞ of fewer than six runs
		if m.value, err = strconv.ParseFloat(line[1], 64); err != nil {
			return nil, err
		}
		if percent, err := strconv.ParseFloat(strings.TrimSuffix(line[2], "%"), 64); err == nil && percent < 100 {
			m.within = percent / 100
		}
		results[i].figures[unit] = m
	}
}

// row is a ratio with what it is of, or has the figures of a benchmark that is compared with nothing.
type row struct {
	Benchmark string               `json:"benchmark"`
	Ours      string               `json:"ours,omitempty"`
	Against   string               `json:"against,omitempty"`
	Ratio     float64              `json:"ratio,omitempty"` // of ops/s, where more is better, or of sec/op
	Low       float64              `json:"low,omitempty"`
	High      float64              `json:"high,omitempty"` // 0: unknown
	Medians   map[string][]float64 `json:"medians"`        // by unit, of ours and of the other
	Targets   []target             `json:"targets,omitempty"`
}

// server is a part that does not matter for combine, which is compared with the locks on all servers.
var server = regexp.MustCompile(`/server=[^/]+`)

// compare returns a row for each ratio.
func compare(results []*result) (rows []row) {
	for _, r := range results {
		if r.of != "" && r.against == "" {
			continue
		}
		row := row{Benchmark: r.benchmark, Ours: r.of, Against: r.against, Medians: map[string][]float64{}}
		if m := r.figures["ratio"]; r.against == "" {
			row.add(r)
		} else if row.Ratio = m.value; m.within < 1 {
			row.Low, row.High = m.value*(1-m.within), m.value*(1+m.within)
		}
		for _, of := range []string{r.of, r.against} {
			for _, measured := range results {
				if of != "" && measured.of == of && measured.against == "" && server.ReplaceAllString(measured.benchmark, "") == server.ReplaceAllString(r.benchmark, "") {
					row.add(measured)
				}
			}
		}
		row.judge()
		rows = append(rows, row)
	}
	return rows
}

// add adds the figures of ours, and then those of the other.
func (r *row) add(of *result) {
	first := len(r.Medians) == 0
	for unit, m := range of.figures {
		if first || r.Medians[unit] != nil {
			r.Medians[unit] = append(r.Medians[unit], m.value)
		}
	}
}

// String is a line of the table: the medians are those of ours, and of the other.
func (r row) String() string {
	text := r.Benchmark
	if r.Against != "" {
		text += fmt.Sprintf("\t%s / %s\t%.2f", r.Ours, r.Against, r.Ratio)
		if r.High > 0 {
			text += fmt.Sprintf(" [%.2f, %.2f]", r.Low, r.High)
		}
	} else {
		text += "\t\t"
	}
	text += "\t"
	units := []string{}
	for unit := range r.Medians {
		units = append(units, unit)
	}
	slices.Sort(units)
	for _, unit := range units {
		for n, m := range r.Medians[unit] {
			text += []string{"  ", ", "}[n] + strconv.FormatFloat(m, 'g', 4, 64)
		}
		text += " " + unit
	}
	for _, t := range r.Targets {
		text += "  " + t.String()
	}
	return text
}
