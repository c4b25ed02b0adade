// SPDX-License-Identifier: MIT

package loadtest

import (
	"fmt"
	"slices"
	"time"

	"shop/loadtest/traffic"
)

// Nemesis injects one fault after the other, by a schedule that is drawn from the seed. It is not part of
// the matrix: its runs are long, and start only on request.
const Nemesis Fault = "nemesis"

// ControlFor bounds the load of a control under Nemesis: the control must be caught within this time.
const ControlFor = 2 * time.Minute

// NemesisSpec is the FaultSpec of Nemesis. recovery is how long the flow's servers need before anything
// can succeed, and slower divides the rate of the load.
func NemesisSpec(recovery time.Duration, slower int, s Setup) FaultSpec {
	s.Links, s.Inject = true, Servers.Nemesis
	return FaultSpec{
		Fault: Nemesis, Setup: s, Apart: true, Outage: true, Recovery: recovery, Slower: slower,
		Needs: []Need{
			{Evidence: "faults", Least: 3, Expect: Safe, Why: "fewer than 3 faults hit anything"},
			{Evidence: "at_rest", Expect: Safe, Why: "the processes and stores at rest were not compared with those before the load"},
		},
	}
}

// Nemesis returns every control and every safe strategy under Nemesis, each with count seeds from seed on.
// A control must break what it breaks in the matrix, except for the invariants in Undisturbed.
func (f *Flow) Nemesis(strategies []Strategy, seed int64, count int) (scenarios []Scenario) {
	known := map[string]bool{}
	add := func(s Scenario) {
		if known[s.Strategy] {
			return
		}
		known[s.Strategy] = true
		for n := range count {
			s.Seed = seed + int64(n)
			scenarios = append(scenarios, s)
		}
	}
	for _, c := range f.Controls {
		safe := func(s Strategy) bool { return s.Safe && s.Name == c.Strategy } // what is wrong is then the fault's set-up
		if c.Expect == Violated && !slices.ContainsFunc(strategies, safe) {
			breaks := slices.DeleteFunc(slices.Clone(c.Breaks), func(code string) bool { return slices.Contains(f.Undisturbed, code) })
			add(f.Control(c.Strategy, Nemesis, c.Keeps, breaks...).NeedsPause())
		}
	}
	for _, s := range strategies {
		if s.Safe {
			add(f.Safe(s.Name, Nemesis))
		}
	}
	return scenarios
}

// A fault begins after the first tenth of a load, and ends before its last quarter: there must still be
// something to sell, so that a success after the fault is possible. In a long load both parts are bounded.
const (
	faultFrom     = 0.10
	faultFromMost = 10 * time.Second
	faultRest     = 0.25
	faultRestMost = 20 * time.Second
)

// faultWindow is when a fault begins in a load, and how long it lasts.
func faultWindow(load time.Duration) (from, over time.Duration) {
	part := func(of float64, most time.Duration) time.Duration { return min(time.Duration(of*float64(load)), most) }
	from = part(faultFrom, faultFromMost)
	return from, load - from - part(faultRest, faultRestMost)
}

// Disturbed reports whether an attempt for a key was under way while a fault lasted, or within the time
// longer after it.
func (t *Trial) Disturbed(r traffic.Record, longer time.Duration) bool {
	for _, a := range r.Attempts {
		for _, e := range t.events {
			if a.End >= e.At.Sub(t.History.Epoch) && a.Start <= e.Until.Sub(t.History.Epoch)+longer {
				return true
			}
		}
	}
	return false
}

// Slim drops the requests and the samples of a result, which do not fit into memory for many long runs.
// The flow's summary of them is kept.
func (r *Result) Slim() {
	r.summed = r.Scenario.Flow.Summary(*r)
	r.Records, r.Loaded, r.Plan, r.Sent, r.Samples, r.Story = nil, 0, traffic.Plan{}, nil, nil, nil
}

// Slimmed reports whether Slim was called.
func (r Result) Slimmed() bool { return r.summed != "" }

// summary is the flow's summary of the requests.
func (r Result) summary() string {
	if r.Slimmed() {
		return r.summed
	}
	return r.Scenario.Flow.Summary(r)
}

// seeded adds the seed to the name of a scenario that has one of its own.
func seeded(name string, seed int64) string {
	if seed == 0 {
		return name
	}
	return fmt.Sprintf("%s@%d", name, seed)
}
