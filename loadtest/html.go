package loadtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
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
}).Parse(pageText))

// HTML writes the page.
func (r Report) HTML(w io.Writer) error {
	if err := page.Execute(w, r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

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

// Line sums a scenario up.
func (r Result) Line() string { return r.sentence() }

// Promised is what buyers were told that they have, in units.
func (r Result) Promised() int64 { return r.soldUnits() }

// gauge is a bar of what was sold, on a scale that all scenarios share.
type gauge struct{ Sold, Over, There float64 } // in percent

// Gauge shows units sold against units there.
func (r Result) Gauge() gauge {
	most := 1.35 * float64(max(r.Stock, 1))
	over := float64(r.Violations["oversold"])
	return gauge{
		Sold:  100 * min(float64(r.Promised())-over, most) / most,
		Over:  100 * min(over, most-float64(r.Stock)) / most,
		There: 100 * float64(r.Stock) / most,
	}
}

// Levels is the flow's plot of what was seen while the load ran.
func (r Result) Levels() chart { return flowOf(r.Flow).Plot(r) }

// Headline is what was shown, if all was as expected.
func (r Report) Headline() string {
	var claims []string
	for _, g := range r.Groups() {
		claims = append(claims, g.Words.Claim)
	}
	text := strings.Join(claims, ", and ")
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
}

// Foreign tells whether this is about somebody else's service.
func (r Report) Foreign() bool { return len(r.Scenarios) > 0 && r.Scenarios[0].Flow == targetFlow }

// Counts says how many scenarios came out as expected.
func (r Report) Counts() (c struct{ Met, All int }) {
	c.All = max(len(r.Scenarios), r.Planned)
	for _, s := range r.Scenarios {
		if s.AsExpected {
			c.Met++
		}
	}
	return c
}
