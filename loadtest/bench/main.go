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
	benchmark string // without the part that says what it measured
	of        string // a strategy or a lock; "": it is compared with nothing
	figures   map[string]median
}

// median is that of all runs. Its interval of 95 % is from value*(1-within) to value*(1+within).
type median struct{ value, within float64 }

// compared is the last part of the name of a benchmark that is compared with others, before the number of CPUs.
var compared = regexp.MustCompile(`^(.*?)(?:/(?:strategy|lock)=([^/]+?))?(?:-\d+)?$`)

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
		name := compared.FindStringSubmatch(line[0])
		i := slices.IndexFunc(results, func(r *result) bool { return r.benchmark == name[1] && r.of == name[2] })
		if i < 0 {
			i = len(results)
			results = append(results, &result{name[1], name[2], map[string]median{}})
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

// row compares one of ours with another, or has the figures of a benchmark that is compared with nothing.
type row struct {
	Benchmark string               `json:"benchmark"`
	Ours      string               `json:"ours,omitempty"`
	Against   string               `json:"against,omitempty"`
	Unit      string               `json:"unit,omitempty"`  // of the ratio: ops/s, more is better, or sec/op, less is better
	Ratio     float64              `json:"ratio,omitempty"` // of the medians; 0: there is none
	Low       float64              `json:"low,omitempty"`   // from the low end of the interval of ours and the high end of the other
	High      float64              `json:"high,omitempty"`  // 0: unknown
	Medians   map[string][]float64 `json:"medians"`         // by unit, of ours and of the other
	Targets   []target             `json:"targets,omitempty"`
}

// own are the strategies and the locks of this repository that are compared with the others of their benchmark.
var own = []string{
	"combined", "redislock", "redisqueue-fair", "etcdlock", "pglock-sessions", "pglock-table", "mysqllock-sessions", "mysqllock-table",
	"mongolock", "zklock", "combine",
}

// server is a part that does not matter for combine, which is compared with the locks on all servers.
var server = regexp.MustCompile(`/server=[^/]+`)

// compare returns a row for each of ours and each other of the same benchmark.
func compare(results []*result) (rows []row) {
	for _, a := range results {
		if a.of == "" {
			rows = append(rows, newRow(a, nil))
			continue
		}
		for _, b := range results {
			same := a.benchmark == b.benchmark || a.of == "combine" && server.ReplaceAllString(a.benchmark, "") == server.ReplaceAllString(b.benchmark, "")
			if same && slices.Contains(own, a.of) && !slices.Contains(own, b.of) {
				rows = append(rows, newRow(a, b))
			}
		}
	}
	return rows
}

func newRow(a, b *result) row {
	r := row{Benchmark: a.benchmark, Ours: a.of, Medians: map[string][]float64{}}
	for unit, m := range a.figures {
		r.Medians[unit] = []float64{m.value}
		if b == nil {
			continue
		}
		other, both := b.figures[unit]
		if !both {
			continue
		}
		r.Medians[unit] = append(r.Medians[unit], other.value)
		if unit != "ops/s" && unit != "sec/op" || other.value == 0 { // nothing to divide by: it did nothing in time
			continue
		}
		r.Unit, r.Ratio, r.Low = unit, m.value/other.value, m.value*(1-m.within)/(other.value*(1+other.within))
		if other.within < 1 {
			r.High = m.value * (1 + m.within) / (other.value * (1 - other.within))
		}
	}
	if b != nil {
		r.Against = b.of
		r.judge()
	}
	return r
}

// String is a line of the table: the medians are those of ours, and of the other.
func (r row) String() string {
	text := r.Benchmark
	if r.Against != "" {
		text += fmt.Sprintf("\t%s / %s\t", r.Ours, r.Against)
		if r.Ratio > 0 {
			text += fmt.Sprintf("%.2f", r.Ratio)
		}
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
