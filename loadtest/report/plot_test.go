// SPDX-License-Identifier: MIT

package report

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/inventory"
	"shop/loadtest/traffic"
)

func names(c chart) (list []string) {
	for _, l := range c.Lines {
		list = append(list, l.Name)
	}
	return list
}

// loaded returns a result with these records, all of the load.
func loaded(records ...traffic.Record) result {
	return result{loadtest.Result{Detail: loadtest.Detail{Scenario: inventory.New().Safe("row", loadtest.NoFault), Records: records, Loaded: len(records)}}}
}

// key returns a record with one planned time that one answer decided.
func key(planned, decided time.Duration, outcome traffic.Outcome) traffic.Record {
	return traffic.Record{Planned: planned, Outcome: outcome, Attempts: []traffic.Attempt{{Start: planned, End: decided, Outcome: outcome, Status: 200}}}
}

func TestRate_ALineForEachOutcomeTheRareOnesOnTop(t *testing.T) {
	const ms = time.Millisecond
	busy := key(0, 3950*ms, traffic.OK)
	busy.Attempts = append([]traffic.Attempt{{End: 50 * ms, Outcome: traffic.Open}, {End: 1950 * ms, Outcome: traffic.Unknown}}, busy.Attempts...)
	read := key(0, 3960*ms, traffic.OK)
	read.Reads = true
	r := loaded(busy, key(0, 3960*ms, traffic.OK), key(0, 20*ms, traffic.Rejected), read)
	r.Records = append(r.Records, key(9*time.Second, 10*time.Second, traffic.OK)) // of the postcheck
	c := r.Rate()
	if diff := cmp.Diff([]string{"refused", "bought", "nothing done, retried", "unknown, retried"}, names(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if bought := c.Lines[1].Values; len(bought) != 40 || bought[39] != 20.0 || bought[38] != 0.0 { // two in the last tenth of a second
		t.Errorf("bought %v, want 20 a second at the end", bought)
	}
	if c.At[0] != 0.05 || c.At[39] != 3.95 || c.Until != 3.96 {
		t.Errorf("the times are %v, until %v", c.At, c.Until)
	}
}

func TestLatencies_AreByPlannedStartWithGapsWhereNothingWasPlanned(t *testing.T) {
	const ms = time.Millisecond
	undecided := key(50*ms, 60*ms, traffic.Unknown)
	read := key(0, 7*time.Second, traffic.OK)
	read.Reads = true
	r := loaded(key(0, 10*ms, traffic.OK), key(10*ms, 12*ms, traffic.Rejected), undecided, read, key(6*time.Second, 6001*ms, traffic.OK))
	c := r.Latencies()
	for n, want := range []line{{"max", "unknown", false, []any{6950.0, 1.0}}, {"p90", "open", false, []any{6950.0, 1.0}}, {"p50", "ok", false, []any{10.0, 1.0}}} {
		got := c.Lines[n]
		got.Values = slices.DeleteFunc(slices.Clone(got.Values), func(v any) bool { return v == nil })
		if diff := cmp.Diff(want, got); diff != "" { // the undecided key waited until the end
			t.Errorf("(-want +got):\n%s", diff)
		}
		if gaps := len(c.At) - len(got.Values); gaps != len(c.At)-2 || len(c.Lines[n].Values) != len(c.At) {
			t.Errorf("%s: %d gaps in %d", got.Name, gaps, len(c.At))
		}
	}
}

func TestChart_TheNumberOfBinsIsBounded(t *testing.T) {
	for _, until := range []time.Duration{time.Second, 8 * time.Second, 81 * time.Second, time.Hour, 8*time.Hour + 1, 1000 * time.Hour} {
		c := loaded(key(0, until, traffic.OK)).newChart("")
		if n := len(c.At); n > binsMost+1 || n < 2 || c.in(until) != n-1 || c.in(2*until) != n-1 || c.in(-1) != 0 {
			t.Errorf("%v: %d bins of %v", until, n, c.bin)
		}
	}
}

func TestLevels_HaveALineForEachCurveAndRedOnesIfItIsViolated(t *testing.T) {
	level := func(at time.Duration, shelf, truth int64) judge.Sample {
		return judge.Sample{At: at, Levels: []judge.Level{{Name: "a", Says: shelf, True: truth}}}
	}
	r := loaded(key(0, 2*time.Second, traffic.OK))
	r.Samples = []judge.Sample{level(0, 100, 100), level(time.Second, 40, 10), level(2*time.Second, 0, -60)}
	r.Violations = map[string]int64{"oversold": 60}
	want := []line{{"after all orders", "bad", false, []any{int64(100), int64(10), int64(-60)}}, {"in the table", "ink", true, []any{int64(100), int64(40), int64(0)}}}
	if diff := cmp.Diff(want, r.Levels().Lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Violations["oversold"] = 0
	if c := r.Levels(); c.Lines[0].Color != "ok" {
		t.Errorf("nothing oversold, and the line is %s", c.Lines[0].Color)
	}
}

func TestChart_MarksTheTimeOfAFault(t *testing.T) {
	epoch := time.Now()
	r := loaded(key(0, 4*time.Second, traffic.OK))
	r.Epoch, r.Events = epoch, []fault.Event{{At: epoch.Add(time.Second), Until: epoch.Add(3 * time.Second)}}
	if c := r.Latencies(); !slices.Equal(c.Faults, [][2]float64{{1, 3}}) || c.Until != 4 {
		t.Errorf("%v until %v, want a fault from 1 to 3 s of 4 s", c.Faults, c.Until)
	}
}

func TestTimeline_ABarForEachRequestWithinTheWhole(t *testing.T) {
	const ms = time.Millisecond
	first, second := loadtest.Bar{Who: "a", Start: 10 * ms, End: 20 * ms}, loadtest.Bar{Who: "b", Start: 15 * ms, End: 30 * ms, Over: true}
	want := timeline{For: 20, Rows: []row{{first, 0, 50}, {second, 25, 75}}}
	if diff := cmp.Diff(want, newTimeline([]loadtest.Bar{first, second})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
