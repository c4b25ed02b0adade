package loadtest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// CheckedLeast is how many operations of each flow the whole proof must have checked for linearizability.
const CheckedLeast = 100_000

// long is how many times as long the load of some scenarios is in the whole proof. It is longer and not denser: twice
// as many requests a second are more than lockid can do on a busy machine with two cores.
const long = 13

// WholeLoad is the load of a scenario in the whole proof.
func (f *Flow) WholeLoad(l Load, s Scenario, lockTTL time.Duration) Load {
	return f.Load(f.lengthen(l, s), s.Fault, lockTTL)
}

// lengthen is the load of a scenario in the whole proof: longer where the flow says so.
func (f *Flow) lengthen(l Load, s Scenario) Load {
	if slices.Contains(f.Long, s.Strategy+"/"+string(s.Fault)) {
		l.Duration *= long
	}
	return l
}

// checked counts the operations of each flow that were checked.
func (r *Report) checked(s Result) {
	if r.Checked == nil {
		r.Checked = map[string]int{}
	}
	r.Checked[s.Flow] += s.Checked
}

// TooFew are the flows of which too few operations were checked.
func (r Report) TooFew() (flows []string) {
	for _, flow := range r.flows() {
		if r.Checked[flow] < r.CheckedLeast {
			flows = append(flows, flow)
		}
	}
	return flows
}

// flows are those of the scenarios, in their order.
func (r Report) flows() (flows []string) {
	for _, s := range r.Scenarios {
		if !slices.Contains(flows, s.Flow) {
			flows = append(flows, s.Flow)
		}
	}
	return flows
}

// Linearized says how many operations of each flow were checked for linearizability; nothing, if none was.
func (r Report) Linearized() string {
	var each []string
	for _, flow := range r.flows() {
		if n := r.Checked[flow]; n > 0 || r.CheckedLeast > 0 {
			each = append(each, counted(n, "operation")+" of "+flow)
		}
	}
	if len(each) == 0 {
		return ""
	}
	text := "Checked for linearizability: " + strings.Join(each, ", ")
	if few := r.TooFew(); len(few) > 0 {
		text += fmt.Sprintf("; NOT AS EXPECTED: of %s, the whole proof has at least %s", strings.Join(few, " and "), counted(r.CheckedLeast, "operation"))
	}
	return text + "."
}
