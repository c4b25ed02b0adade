package loadtest

import (
	"fmt"
	"time"
)

// Nemesis is one fault after the other, by a schedule that is drawn from the seed. It is no
// part of the matrix: a run of it is long, and is asked for.
const Nemesis Fault = "nemesis"

// ControlFor bounds the load of a control under Nemesis: it must be caught within that.
const ControlFor = 2 * time.Minute

// NemesisSpec is Nemesis under a flow, whose servers need so long before anything can succeed,
// and which is sent so many times fewer requests than without a fault.
func NemesisSpec(recovery time.Duration, slower int) FaultSpec {
	return FaultSpec{
		Fault: Nemesis, Apart: true, Outage: true, Recovery: recovery, Slower: slower,
		Needs: []Need{{Evidence: "faults", Least: 3, Expect: Safe, Why: "fewer than 3 faults hit anything"}},
	}
}

// Nemesis is every safe strategy and every control under Nemesis, each with so many seeds.
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
		if c.Expect == Violated {
			add(f.Control(c.Strategy, Nemesis, c.Keeps, c.Breaks...))
		}
	}
	for _, s := range strategies {
		if s.Safe {
			add(f.Safe(s.Name, Nemesis))
		}
	}
	return scenarios
}

// The fault begins when the load is in full swing, and ends while there is still something to
// sell: a success after it must be possible. Of a long load not much is left out.
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

// Disturbed tells whether an attempt for a key was under way while a fault lasted, or not
// much longer after it.
func (t *Trial) Disturbed(r Record, longer time.Duration) bool {
	for _, a := range r.Attempts {
		for _, e := range t.events {
			if a.End >= e.At.Sub(t.History.Epoch) && a.Start <= e.Until.Sub(t.History.Epoch)+longer {
				return true
			}
		}
	}
	return false
}

// Slim lets go of the requests of a result, and of what was sampled: of many long runs they do
// not fit into memory. What the flow says of them stays.
func (r *Result) Slim() {
	r.summed = r.Scenario.Flow.Summary(*r)
	r.Records, r.Loaded, r.Plan, r.Sent, r.Samples, r.Story = nil, 0, Plan{}, nil, nil, nil
}

// Slimmed tells whether Slim was called.
func (r Result) Slimmed() bool { return r.summed != "" }

// summary is what the flow says of the requests.
func (r Result) summary() string {
	if r.Slimmed() {
		return r.summed
	}
	return r.Scenario.Flow.Summary(r)
}

// seeded is the name of a scenario that is run with several seeds.
func seeded(name string, seed int64) string {
	if seed == 0 {
		return name
	}
	return fmt.Sprintf("%s@%d", name, seed)
}
