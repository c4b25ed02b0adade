package report

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"shop/loadtest"
	"shop/loadtest/scenario/inventory"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
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

func TestLatency_ADotForEachAttemptByOutcomeTheRareOnesOnTop(t *testing.T) {
	r := result{loadtest.Result{Detail: loadtest.Detail{Records: []loadtest.Record{{Attempts: []loadtest.Attempt{
		{Start: 0, End: 100 * time.Microsecond, Outcome: loadtest.OK}, // under a millisecond
		{Start: time.Second, End: 9 * time.Second, Outcome: loadtest.Unknown},
		{Start: 9 * time.Second, End: 9*time.Second + 5*time.Millisecond, Outcome: loadtest.Rejected},
		{Start: 2 * time.Second, End: 2*time.Second + time.Millisecond, Outcome: loadtest.Rejected},
	}}}}}}
	c := r.Latency()
	within(t, c)
	if diff := cmp.Diff([]string{"dot rejected", "dot ok", "dot unknown"}, classes(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := strings.Count(c.Shapes[0].D, "M"); n != 2 {
		t.Errorf("%d dots of refusals, want 2", n)
	}
	if top := c.YTicks[len(c.YTicks)-1].Label; top != "10 s" {
		t.Errorf("the scale ends at %s, want 10 s", top)
	}
}

func TestLevels_AnOversaleGoesBelowZeroAndIsFilled(t *testing.T) {
	level := func(at time.Duration, shelf, truth int64) loadtest.Sample {
		return loadtest.Sample{At: at, Levels: []loadtest.Level{{Name: "a", Says: shelf, True: truth}}}
	}
	r := result{loadtest.Result{Detail: loadtest.Detail{Scenario: inventory.New().Safe("row", loadtest.NoFault), Samples: []loadtest.Sample{level(0, 100, 100), level(time.Second, 40, 10), level(2*time.Second, 0, -60)}}}}
	r.Records = []loadtest.Record{{Attempts: []loadtest.Attempt{{End: 2 * time.Second}}}}
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

func TestChart_MarksTheTimeOfAFault(t *testing.T) {
	epoch := time.Now()
	r := result{loadtest.Result{Detail: loadtest.Detail{Epoch: epoch, Events: []fault.Event{{At: epoch.Add(time.Second), Until: epoch.Add(3 * time.Second)}}}}}
	r.Records = []loadtest.Record{{Attempts: []loadtest.Attempt{{End: 4 * time.Second, Outcome: loadtest.OK}}}}
	c := r.Latency()
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
