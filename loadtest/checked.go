// SPDX-License-Identifier: MIT

package loadtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest/traffic"
)

// CheckedLeast is how many operations of each flow the whole proof must have checked for linearizability.
const CheckedLeast = 100_000

// long is the factor by which the load of some scenarios is longer in the whole proof. Their rate is not
// raised: lockid cannot handle twice as many requests a second on a busy machine with two cores.
const long = 13

// calmer divides the rate and multiplies the duration of the load in the whole proof, unless the fault has a lower rate. In
// 8 s a queue grows, if a machine is slow, until requests no longer get the lock in time.
const calmer = 2

// WholeLoad is the load of a scenario in the whole proof.
func (f *Flow) WholeLoad(l traffic.Load, s Scenario, lockTTL time.Duration) traffic.Load {
	return f.Load(f.lengthen(l, s), s.Fault, lockTTL)
}

// lengthen makes the load of a scenario longer where Flow.Long names the scenario, and calmer.
func (f *Flow) lengthen(l traffic.Load, s Scenario) traffic.Load {
	if f.spec(s.Fault).Slower <= 1 {
		l.Rate, l.Duration = l.Rate/calmer, l.Duration*time.Duration(calmer)
	}
	if slices.Contains(f.Long, s.Strategy+"/"+string(s.Fault)) {
		l.Duration *= long
	}
	return l
}

// checked adds the operations of a result to those of its flow.
func (r *Report) checked(s Result) {
	if r.Checked == nil {
		r.Checked = map[string]int{}
	}
	r.Checked[s.Flow] += s.Checked
}

// TooFew returns the flows with fewer checked operations than CheckedLeast.
func (r Report) TooFew() (flows []string) {
	for _, flow := range r.flows() {
		if r.Checked[flow] < r.CheckedLeast {
			flows = append(flows, flow)
		}
	}
	return flows
}

// flows returns the flows of the scenarios, in order of first appearance.
func (r Report) flows() (flows []string) {
	for _, s := range r.Scenarios {
		if !slices.Contains(flows, s.Flow) {
			flows = append(flows, s.Flow)
		}
	}
	return flows
}

// Linearized is a sentence on how many operations of each flow were checked for linearizability; "" if
// none was.
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
		text += fmt.Sprintf("; NOT AS EXPECTED: the whole proof needs at least %s of %s", counted(r.CheckedLeast, "operation"), strings.Join(few, " and of "))
	}
	return text + "."
}
