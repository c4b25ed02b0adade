// SPDX-License-Identifier: MIT

package report

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/inventory"
	"shop/loadtest/traffic"
)

// within checks that all points of a chart lie in its plotting area.
func within(t *testing.T, c chart) {
	t.Helper()
	point := regexp.MustCompile(`[ML](-?[\d.]+) (-?[\d.]+)`)
	for _, s := range c.Shapes {
		for _, match := range point.FindAllStringSubmatch(s.D, -1) {
			x, _ := strconv.ParseFloat(match[1], 64)
			y, _ := strconv.ParseFloat(match[2], 64)
			if x < c.Left-0.1 || x > c.Right+0.1 || y < c.Top-0.1 || y > c.Bottom+0.1 {
				t.Errorf("%s: point (%g, %g) lies outside", s.Class, x, y)
			}
		}
	}
}

func classes(c chart) (list []string) {
	for _, s := range c.Shapes {
		list = append(list, s.Class)
	}
	return list
}

// loaded returns a result with these records, all of the load.
func loaded(records ...traffic.Record) result {
	return result{loadtest.Result{Detail: loadtest.Detail{Records: records, Loaded: len(records)}}}
}

// key returns a record with one planned time that one answer decided.
func key(planned, decided time.Duration, outcome traffic.Outcome) traffic.Record {
	return traffic.Record{Planned: planned, Outcome: outcome, Attempts: []traffic.Attempt{{Start: planned, End: decided, Outcome: outcome, Status: 200}}}
}

func TestRate_ALineForEachOutcomeTheRareOnesOnTop(t *testing.T) {
	const ms = time.Millisecond
	busy := key(0, 3950*ms, traffic.OK)
	busy.Attempts = append([]traffic.Attempt{{End: 50 * ms, Outcome: traffic.Open}, {End: 1950 * ms, Outcome: traffic.Unknown}}, busy.Attempts...)
	r := loaded(busy, key(0, 3960*ms, traffic.OK), key(0, 20*ms, traffic.Rejected))
	r.Records = append(r.Records, key(9*time.Second, 10*time.Second, traffic.OK)) // of the postcheck
	c := r.Rate()
	within(t, c)
	if diff := cmp.Diff([]string{"line rejected", "line ok", "line open", "line unknown"}, classes(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if top := c.YTicks[len(c.YTicks)-1].Label; top != "20/s" { // two in a tenth of a second
		t.Errorf("the scale ends at %s, want 20/s", top)
	}
	if last := c.XTicks[len(c.XTicks)-1].Label; last != "3 s" {
		t.Errorf("the time ends at %s, want 3 s: the load ended before 4 s", last)
	}
}

func TestLatencies_AreByPlannedStartWithGapsWhereNothingWasPlanned(t *testing.T) {
	const ms = time.Millisecond
	undecided := key(50*ms, 60*ms, traffic.Unknown)
	read := key(0, 7*time.Second, traffic.OK)
	read.Reads = true
	r := loaded(key(0, 10*ms, traffic.OK), key(10*ms, 12*ms, traffic.Rejected), undecided, read, key(6*time.Second, 6001*ms, traffic.OK))
	c := r.Latencies()
	within(t, c)
	if diff := cmp.Diff([]string{"line max", "line p90", "line p50"}, classes(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, s := range c.Shapes {
		if strings.Count(s.D, "M") != 2 || strings.Contains(s.D, "L") {
			t.Errorf("%s: %s; want two dots", s.Class, s.D)
		}
	}
	if top := c.YTicks[len(c.YTicks)-1].Label; top != "10 s" { // the undecided key waited until the end
		t.Errorf("the scale ends at %s, want 10 s", top)
	}
}

func TestBins_TheNumberOfPointsIsBounded(t *testing.T) {
	for _, until := range []time.Duration{time.Second, 8 * time.Second, 81 * time.Second, time.Hour, 8*time.Hour + 1, 1000 * time.Hour} {
		if b := newBins(until); b.n > binsMost+1 || b.n < 2 || b.of(until) != b.n-1 || b.of(2*until) != b.n-1 || b.of(-1) != 0 {
			t.Errorf("%v: %d bins of %v", until, b.n, b.width)
		}
	}
}

func TestLevels_AnOversaleGoesBelowZeroAndIsFilled(t *testing.T) {
	level := func(at time.Duration, shelf, truth int64) judge.Sample {
		return judge.Sample{At: at, Levels: []judge.Level{{Name: "a", Says: shelf, True: truth}}}
	}
	r := result{loadtest.Result{Detail: loadtest.Detail{Scenario: inventory.New().Safe("row", loadtest.NoFault), Samples: []judge.Sample{level(0, 100, 100), level(time.Second, 40, 10), level(2*time.Second, 0, -60)}}}}
	r.Records, r.Loaded = []traffic.Record{key(0, 2*time.Second, traffic.OK)}, 1
	c := r.Levels()
	within(t, c)
	if diff := cmp.Diff([]string{"below", "line true", "line shelf"}, classes(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Zero <= c.Top || c.Zero >= c.Bottom {
		t.Errorf("the zero line is at %g", c.Zero)
	}
	r.Samples = r.Samples[:2]
	if c := r.Levels(); c.Zero != 0 || len(c.Shapes) != 2 {
		t.Errorf("nothing oversold: zero line %g, shapes %v", c.Zero, classes(c))
	}
}

func TestLevels_OfALongRunKeepTheExtremesAndFewPoints(t *testing.T) {
	r := loaded(key(0, time.Hour, traffic.OK))
	r.Scenario = inventory.New().Safe("row", loadtest.NoFault)
	for at := time.Duration(0); at < time.Hour; at += judge.SampleEvery {
		units := int64(100)
		if at == 20*time.Minute {
			units = -1
		}
		r.Samples = append(r.Samples, judge.Sample{At: at, Levels: []judge.Level{{Name: "a", Says: 100, True: units}}})
	}
	c := r.Levels()
	within(t, c)
	if n := strings.Count(c.Shapes[1].D, "L"); c.Shapes[0].Class != "below" || n < binsMost || n > 4*binsMost {
		t.Errorf("shapes %v, %d points; want what is below 0, and between %d and %d points", classes(c), n, binsMost, 4*binsMost)
	}
}

func TestChart_MarksTheTimeOfAFault(t *testing.T) {
	epoch := time.Now()
	r := loaded(key(0, 4*time.Second, traffic.OK))
	r.Epoch, r.Events = epoch, []fault.Event{{At: epoch.Add(time.Second), Until: epoch.Add(3 * time.Second)}}
	c := r.Latencies()
	quarter := (c.Right - c.Left) / 4
	if len(c.Bands) != 1 || c.Bands[0].X != c.Left+quarter || c.Bands[0].Width != 2*quarter {
		t.Errorf("%+v, want a band from the first to the third quarter", c.Bands)
	}
}

func TestNiceSteps_AreRoundAndHaveZeroAmongThem(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{
		{0, 670, []float64{0, 100, 200, 300, 400, 500, 600}},
		{-112, 815, []float64{0, 200, 400, 600, 800}},
		{-300, 900, []float64{-250, 0, 250, 500, 750}},
		{0, 90, []float64{0, 20, 40, 60, 80}},
		{0, 3, []float64{0, 1, 2, 3}},
		{0, 0, []float64{0}},
	} {
		if diff := cmp.Diff(c.want, niceSteps(c.low, c.high)); diff != "" {
			t.Errorf("%g to %g (-want +got):\n%s", c.low, c.high, diff)
		}
	}
}
