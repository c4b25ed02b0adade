package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"shop/loadtest"
)

//go:embed report.html
var pageText string

// page needs nothing but itself: no script, no font, no address.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"px":       func(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") },
	"add":      func(a, b float64) float64 { return a + b },
	"anchor":   func(name string) string { return strings.NewReplacer("/", "-", "+", "-").Replace(name) },
	"first":    first,
	"drawbars": drawBars,
}).Parse(pageText))

// HTML writes the page.
func HTML(w io.Writer, r loadtest.Report) error {
	if err := page.Execute(w, view{r}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// view is the report as the page shows it.
type view struct{ loadtest.Report }

// Groups are the scenarios by flow.
func (v view) Groups() []group { return groups(v.Report) }

// Invariants are all that were checked, those that hold included: the flow's, those of
// every flow, and others (of a service that is not ours) after them.
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

// named is a number with its name and what it counts.
type named struct {
	Code, Name, Means string
	N                 int64
}

// Counted is the evidence that is not 0.
func (r result) Counted() (list []named) {
	for _, name := range slices.Sorted(maps.Keys(r.Evidence)) {
		if n := r.Evidence[name]; n != 0 {
			list = append(list, named{name, name, r.Scenario.Flow.Explain(name), n})
		}
	}
	return list
}

// first keeps a list short.
func first(ids []string) string {
	const most = 8
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + " …"
	}
	return strings.Join(ids, ", ")
}

// bar is a gauge, in percent.
type bar struct{ Done, Over, There float64 }

// Bar shows the flow's gauge on a scale that all scenarios share; nil: there is none.
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

// Foreign tells whether this is about a service that is not ours.
func (v view) Foreign() bool {
	return len(v.Scenarios) > 0 && v.Scenarios[0].Flow == loadtest.TargetFlow
}

// Counts says how many scenarios came out as expected.
func (v view) Counts() (c struct{ Met, All int }) {
	c.All = max(len(v.Scenarios), v.Planned)
	for _, s := range v.Scenarios {
		if s.AsExpected {
			c.Met++
		}
	}
	return c
}
