// SPDX-License-Identifier: MIT

package loadtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

func nemesisFlow() *Flow {
	f := &Flow{
		Name: "flow", Faults: []FaultSpec{{Fault: NoFault}, NemesisSpec(time.Second, 1, Setup{})}, Undisturbed: []string{"R"},
		Shown: Shown{Summary: func(r Result) string { return fmt.Sprint(len(r.Records[:r.Loaded]), " requests") }},
	}
	f.Controls = []Scenario{f.Control("naive", NoFault, []string{"K"}, "B"), f.Safe("half", NoFault), f.Control("half", "other", nil, "R", "C")}
	return f
}

var nemesisStrategies = []Strategy{{Name: "naive"}, {Name: "half"}, {Name: "good", Safe: true}}

func TestNemesis_IsNotPartOfTheMatrix(t *testing.T) {
	for _, s := range nemesisFlow().Matrix(nemesisStrategies) {
		if s.Fault == Nemesis {
			t.Error(s.Name())
		}
	}
}

func TestNemesis_EachStrategyOnceForEachSeedAndControlsMustBeCaught(t *testing.T) {
	var got []string
	for _, s := range nemesisFlow().Nemesis(nemesisStrategies, 7, 2) {
		got = append(got, fmt.Sprint(s.Name(), " ", s.Folder(), " ", s.Expect, s.Breaks, s.Keeps))
	}
	want := []string{
		"flow/naive/nemesis@7 flow-naive-nemesis@7 violated[B] [K]", "flow/naive/nemesis@8 flow-naive-nemesis@8 violated[B] [K]",
		"flow/half/nemesis@7 flow-half-nemesis@7 violated[C] []", "flow/half/nemesis@8 flow-half-nemesis@8 violated[C] []",
		"flow/good/nemesis@7 flow-good-nemesis@7 safe[] []", "flow/good/nemesis@8 flow-good-nemesis@8 safe[] []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestNemesis_AControlHasTwoMinutesAndEachScenarioItsSeed(t *testing.T) {
	p := Proof{Load: traffic.Load{Duration: time.Hour, Seed: 1}}
	all := nemesisFlow().Nemesis(nemesisStrategies, 7, 1)
	if load := p.loadOf(all[0]); load.Duration != ControlFor || load.Seed != 7 {
		t.Errorf("%+v", load)
	}
	if load := p.loadOf(all[2]); load.Duration != time.Hour || load.Seed != 7 {
		t.Errorf("%+v", load)
	}
}

func TestFaultWindow_CoversNearlyAllOfALongLoad(t *testing.T) {
	for load, want := range map[time.Duration][2]time.Duration{
		8 * time.Second:  {800 * time.Millisecond, 5200 * time.Millisecond},
		30 * time.Minute: {10 * time.Second, 30*time.Minute - 30*time.Second},
	} {
		if from, over := faultWindow(load); from != want[0] || over != want[1] {
			t.Errorf("%v: %v, %v", load, from, over)
		}
	}
}

func TestSlim_KeepsTheSummary(t *testing.T) {
	f := nemesisFlow()
	r := NewResult(f.Safe("good", Nemesis), 3)
	r.Records, r.Loaded = make([]traffic.Record, 5), 4
	before := r.Sentence()
	if r.Slim(); r.Sentence() != before || !r.Slimmed() || r.Records != nil {
		t.Errorf("%q, was %q", r.Sentence(), before)
	}
}
