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
	"explain":  func(name string) string { return evidenceMeans[name] },
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

// invariants says in a sentence what each of them promises.
var invariants = []struct{ name, means string }{
	{"S1", "the stock is what was put there minus what was bought, by order lines and by movements"},
	{"S1-DURING", "and so it is at every look while the load runs"},
	{"S2", "what left the shelf is what buyers were told, give or take what is unknown"},
	{"I-ACK", "an order that was acknowledged is there, as acknowledged"},
	{"I-REJ", "an order that was refused, or never asked for, is not there"},
	{"I-ONCE", "a key has one effect, and every final answer to it is the same, byte for byte"},
	{"I-WHOLE", "an order has all its lines or does not exist"},
	{"I-LIVE", "purchases succeed soon after each fault, every key is decided, and answered when asked again, and a last purchase works on every product"},
	{"I-SOLD", "all that was there is sold"},
	{"oversold", "units sold beyond what ever was there"},
}

func means(invariant string) string {
	for _, promise := range invariants {
		if promise.name == invariant {
			return promise.means
		}
	}
	return ""
}

// evidenceMeans says what the numbers count that are not verdicts.
var evidenceMeans = map[string]string{
	"overlaps":            "requests under way for a product while another replica had one for the same",
	"attempts":            "requests on the wire, repetitions included",
	"sent_again":          "repetitions of a key that was not decided",
	"replayed":            "decided keys that were asked again in the end, and answered",
	"unknown_answers":     "answers, or missing answers, after which the client could not know",
	"cut_off":             "requests that lost their replica in the middle",
	"silent_retries":      "requests that were repeated behind the recorder's back",
	"samples":             "looks at the database while the load ran",
	"crashes":             "replicas killed",
	"locks_deleted":       "locks deleted under their holders",
	"redis_kills":         "times Redis was killed",
	"lock_acquired":       "locks taken",
	"lock_acquired_after": "locks taken after Redis was back",
	"lock_busy":           "attempts to take a lock that someone else had",
	"lock_timed_out":      "waits for a lock that were given up",
	"lock_lost":           "holders that noticed that their lock was gone",
	"guard_tripped":       "times the last guard, CHECK (stock >= 0), refused a write",
	"retried":             "transactions that ran again",
	"degraded":            "purchases with the row lock alone, Redis being unreachable",
	"shed":                "purchases refused meanwhile, too many being under way",
	"ambiguous":           "COMMITs that got no answer",
	"resolved":            "and that were decided by the same key",
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
