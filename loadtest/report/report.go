// SPDX-License-Identifier: MIT

// Package report writes the result of a proof: a table for the terminal, prove.json for programs, a
// self-contained page with plots, and JUnit XML and a summary for CI.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/cmd/shop/lab/uplot"
	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/traffic"
)

// Write writes prove.json and index.html into a folder. Into the folder of each scenario it writes the
// results of vegeta, and the history if the proof has not written it.
func Write(folder string, r loadtest.Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err := errors.Join(err, os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	var failed error
	for i := range r.Scenarios {
		failed = errors.Join(failed, writeFiles(folder, r, &r.Scenarios[i]))
	}
	var page bytes.Buffer
	failed = errors.Join(failed, HTML(&page, r))
	files := map[string][]byte{"prove.json": append(text, '\n'), "index.html": page.Bytes()}
	for name, content := range files {
		failed = errors.Join(failed, os.WriteFile(filepath.Join(folder, name), content, 0o644))
	}
	return failed
}

// writeFiles writes attack.bin and the history of a scenario, and lists the files in its folder.
func writeFiles(folder string, r loadtest.Report, of *loadtest.Result) error {
	if of.Slimmed() {
		return nil
	}
	folder = filepath.Join(folder, of.Folder())
	if err := errors.Join(os.MkdirAll(folder, 0o755), writeAttack(folder, of)); err != nil {
		return err
	}
	history := filepath.Join(folder, judge.HistoryFile)
	if _, err := os.Stat(history); err != nil {
		header := linear.Header{Flow: of.Flow, Strategy: of.Strategy, Fault: string(of.Fault), Seed: cmp.Or(of.Seed, r.Seed), Epoch: of.Epoch}
		if err := judge.WriteHistory(history, judge.Written(header, of.Records)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(folder)
	of.Files = nil
	for _, e := range entries {
		of.Files = append(of.Files, e.Name())
	}
	return err
}

// writeAttack writes vegeta's results, for vegeta report and vegeta plot. (They reject an empty file.)
func writeAttack(folder string, of *loadtest.Result) error {
	if len(of.Sent) == 0 {
		return nil
	}
	var file bytes.Buffer
	encode := vegeta.NewEncoder(&file)
	for _, result := range of.Sent {
		result.Attack = of.Name() // its name in a plot of several attacks
		if err := encode(&result); err != nil {
			return fmt.Errorf("attack.bin: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(folder, "attack.bin"), file.Bytes(), 0o644)
}

//go:embed report.html
var pageText string

//go:embed plot.js
var plotJS string

// page is self-contained: its scripts are in it, and it loads nothing.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"px":       func(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") },
	"anchor":   func(name string) string { return strings.NewReplacer("/", "-", "+", "-").Replace(name) },
	"first":    first,
	"groups":   groups,
	"timeline": newTimeline,
	"css":      func() template.CSS { return template.CSS(uplot.CSS) },
	"script":   func() template.JS { return template.JS(uplot.JS + plotJS) },
	"path":     func(folder, file string) string { return url.PathEscape(folder) + "/" + url.PathEscape(file) },
}).Parse(pageText))

// HTML writes the page.
func HTML(w io.Writer, r loadtest.Report) error {
	if err := page.Execute(w, r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Invariants returns all invariants that were checked, also those that hold: the flow's, those of every
// flow, and then others (of a Target).
func (r result) Invariants() (list []named) {
	flow := r.Scenario.Flow
	known := map[string]bool{}
	for _, i := range flow.AllInvariants() {
		if n, checked := r.Violations[i.Code]; checked && !known[i.Code] {
			list = append(list, named{i.Code, i.String(), i.Means, n})
		}
		known[i.Code] = true
	}
	for _, code := range slices.Sorted(maps.Keys(r.Violations)) {
		if !known[code] {
			list = append(list, named{code, code, flow.Explain(code), r.Violations[code]})
		}
	}
	return list
}

// named is a number with its name and its meaning.
type named struct {
	Code, Name, Means string
	N                 int64
}

// Counted returns the evidence that is not 0.
func (r result) Counted() (list []named) {
	for _, name := range slices.Sorted(maps.Keys(r.Evidence)) {
		if n := r.Evidence[name]; n != 0 {
			list = append(list, named{name, name, r.Scenario.Flow.Explain(name), n})
		}
	}
	return list
}

// first joins the first ids of a list.
func first(ids []string) string {
	const most = 8
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + " …"
	}
	return strings.Join(ids, ", ")
}

// bar is a gauge, in percent.
type bar struct{ Done, Over, There float64 }

// Bar returns the flow's gauge on a scale that all scenarios share; nil if there is none.
func (r result) Bar() *bar {
	if r.Scenario.Flow.Gauge == nil {
		return nil
	}
	g := r.Scenario.Flow.Gauge(r.Result)
	if g.There == 0 {
		return nil
	}
	most := 1.35 * float64(g.There)
	return &bar{
		Done:  100 * min(float64(g.Done-g.Over), most) / most,
		Over:  100 * min(float64(g.Over), most-float64(g.There)) / most,
		There: 100 * float64(g.There) / most,
	}
}

// writes is what the tables count, and how it differs from what vegeta prints of the same run.
const writes = "writes: keys, each once. (go tool vegeta report counts planned requests: second copies and reads too, no retry, no follow-up.)"

// Table prints a table for each flow, and the crash matrices.
func Table(w io.Writer, r loadtest.Report) error {
	for i, group := range groups(r) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := group.table(w); err != nil {
			return err
		}
	}
	if len(r.Scenarios) > 0 {
		fmt.Fprintln(w, writes)
	}
	if err := cellTables(w, r); err != nil || r.CalledOff() == "" {
		return err
	}
	_, err := fmt.Fprintln(w, "\nNOT AS EXPECTED: "+r.CalledOff())
	return err
}

// group holds the results of one flow.
type group struct {
	*loadtest.Flow
	Results []result
	Several bool // the report has other groups
}

// result adds methods that draw a Result.
type result struct{ loadtest.Result }

// groups returns the results by flow, in order of first appearance.
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

// Faults returns the faults that were tried, in the flow's order.
func (g group) Faults() (faults []loadtest.Fault) {
	for _, spec := range g.Flow.Faults {
		if slices.ContainsFunc(g.Results, func(r result) bool { return r.Fault == spec.Fault }) {
			faults = append(faults, spec.Fault)
		}
	}
	return faults
}

// strategy is a row of the matrix of verdicts.
type strategy struct {
	Name  string
	Cells []*result // by fault; nil: not tried
}

// Matrix returns the strategies that were tried, each with its result under each fault.
func (g group) Matrix() (rows []strategy) {
	faults := g.Faults()
	for i := range g.Results {
		r := &g.Results[i]
		at := slices.IndexFunc(rows, func(s strategy) bool { return s.Name == r.Strategy })
		if at < 0 {
			at, rows = len(rows), append(rows, strategy{r.Strategy, make([]*result, len(faults))})
		}
		// Of several seeds, the cell shows one that is not as expected, if there is one.
		if column := slices.Index(faults, r.Fault); column >= 0 && (rows[at].Cells[column] == nil || !r.AsExpected) {
			rows[at].Cells[column] = r
		}
	}
	return rows
}

// measured is a row of the table of latencies.
type measured struct {
	Name, Means string
	traffic.Percentiles
}

// Each returns the cells of the row.
func (m measured) Each() []float64 { return []float64{m.P50, m.P90, m.P99, m.P999, m.Max} }

// Measured returns the latencies that have values, and the lag of the generator.
func (r result) Measured() (rows []measured) {
	for _, row := range []measured{
		{"decided", "keys of writes: from the planned start to the decision", r.Latency.Decided},
		{"first answer", "keys of writes: from the planned start to the first answer, whatever it says", r.Latency.FirstAnswer},
		{"reads", "reads: from the planned start to the answer", r.Latency.Reads},
		{"lag", "the generator: from the planned start of a key to the actual one", r.Latency.Lag},
	} {
		if row.N > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

func (g group) table(w io.Writer) error {
	if g.Several {
		fmt.Fprintln(w, g.Name)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "strategy\tfault\texpected\tverdict\t\t%s\twrites\tok\trejected\tunknown\toverlaps\tper s\tp50 ms\tp99 ms\t\n", g.Number)
	for _, s := range g.Results {
		mark := "ok"
		switch {
		case !s.AsExpected:
			mark = "NOT AS EXPECTED"
		case s.NeedsPause:
			mark = "ok, with a pause"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%.1f\t%.1f\t\n",
			s.Strategy, s.Fault, s.Expect, s.Verdict, mark, s.Violations[g.Number],
			s.Requests, s.OK, s.Rejected, s.Unknown, s.Evidence["overlaps"], s.PerSecond, s.P50, s.P99)
	}
	return t.Flush()
}
