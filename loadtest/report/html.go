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
	"evidence": evidence,
	"inorder":  inOrder,
	"means":    means,
	"explain":  explain,
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

// number is a named one, of a map in order.
type number struct {
	Name string
	N    int64
}

// evidence is what there is of it.
func evidence(m map[string]int64) []number {
	var list []number
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] != 0 {
			list = append(list, number{name, m[name]})
		}
	}
	return list
}

// inOrder is all of them, those that hold included, in the order of the
// table below, and others (somebody else's) after them.
func inOrder(m map[string]int64) []number {
	var list []number
	for _, promise := range invariants {
		if n, there := m[promise.name]; there {
			list = append(list, number{promise.name, n})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if means(name) == "" {
			list = append(list, number{name, m[name]})
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

// Headline is what was shown, if all was as expected.
func (v view) Headline() string {
	var claims []string
	for _, g := range v.Groups() {
		claims = append(claims, g.Words.Claim)
	}
	text := strings.Join(claims, ", and ")
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
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
