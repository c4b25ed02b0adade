package loadtest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	r := Result{Detail: Detail{Records: []Record{{Attempts: []Attempt{
		{Start: 0, End: 100 * time.Microsecond, Outcome: OK}, // under a millisecond
		{Start: time.Second, End: 9 * time.Second, Outcome: Unknown},
		{Start: 9 * time.Second, End: 9*time.Second + 5*time.Millisecond, Outcome: Rejected},
		{Start: 2 * time.Second, End: 2*time.Second + time.Millisecond, Outcome: Rejected},
	}}}}}
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

func TestShelf_AnOversaleGoesBelowZeroAndIsFilled(t *testing.T) {
	level := func(at time.Duration, shelf, truth int64) Sample {
		return Sample{at, []Level{{"a", shelf, truth}}}
	}
	r := Result{Detail: Detail{Stock: 100, Samples: []Sample{level(0, 100, 100), level(time.Second, 40, 10), level(2*time.Second, 0, -60)}}}
	r.Records = []Record{{Attempts: []Attempt{{End: 2 * time.Second}}}}
	c := r.Shelf()
	within(t, c)
	if diff := cmp.Diff([]string{"below", "line true", "line shelf"}, classes(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Zero <= c.Top || c.Zero >= c.Bottom {
		t.Errorf("the zero line is at %g", c.Zero)
	}
	r.Samples = r.Samples[:2]
	if c := r.Shelf(); c.Zero != 0 || len(c.Shapes) != 2 {
		t.Errorf("nothing oversold: zero line %g, shapes %v", c.Zero, classes(c))
	}
}

func TestChart_MarksTheTimeOfAFault(t *testing.T) {
	epoch := time.Now()
	r := Result{Detail: Detail{Epoch: epoch, Events: []fault.Event{{At: epoch.Add(time.Second), Until: epoch.Add(3 * time.Second)}}}}
	r.Records = []Record{{Attempts: []Attempt{{End: 4 * time.Second, Outcome: OK}}}}
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

func TestStory_FirstTheClashThenTheSalesBeyondTheEnd(t *testing.T) {
	const ms = time.Millisecond
	sale := func(key string, replica int, sold int64, start, end time.Duration) Sale {
		return Sale{key, 1, sold, Attempt{Replica: replica, Start: start, End: end}}
	}
	o := &Oversale{SKU: "a", Put: 3, Sales: []Sale{
		sale("alone", 0, 1, 0, 10*ms),
		sale("both", 0, 2, 20*ms, 30*ms), sale("at once", 1, 3, 25*ms, 35*ms),
		sale("beyond", 2, 4, 500*ms, 510*ms),
	}}
	r := Result{Detail: Detail{Oversale: o, Samples: []Sample{{400 * ms, []Level{{"a", 1, 0}}}}}}
	s := r.Story()
	if s.Met != 2 || len(s.Clash.Rows) != 3 || len(s.Over.Rows) != 4 {
		t.Fatalf("%d met, %d and %d rows; want 2, 3 and 4", s.Met, len(s.Clash.Rows), len(s.Over.Rows))
	}
	if last := s.Over.Rows[3]; last.Class != "over" || last.Then != "4 of 3 sold" || last.Who != "replica 3 sells 1" || s.Over.Rows[2].Class != "fine" {
		t.Errorf("%+v", s.Over.Rows)
	}
	if !strings.Contains(s.Shelf, "500ms") || !strings.Contains(s.Shelf, "1 left") {
		t.Errorf("the shelf: %s", s.Shelf)
	}
	lonely := func(n int) []Sale { return slices.Repeat([]Sale{sale("x", 0, 1, 0, 1)}, n) }
	crowd := []Sale{sale("l", 0, 1, 1, 9), sale("m", 1, 1, 1, 9), sale("n", 2, 1, 1, 9)}
	if place, met := clashes(slices.Concat(lonely(5), crowd, lonely(9))); met < 3 || place > 5 || place < 2 {
		t.Errorf("a crowd of 3 at 5: %d met, shown from %d", met, place)
	}
	if (Result{}).Story() != nil {
		t.Error("a story of nothing")
	}
}
