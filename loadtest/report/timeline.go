package report

import (
	"fmt"
	"math"
	"time"

	"shop/loadtest"
)

// timeline is a row for each request of a part of a story.
type timeline struct {
	Rows                       []row
	Width, Height, Left, Right float64
	XTicks                     []tick
}

// row is one request: when it was under way, where, and what came of it.
type row struct {
	X, Y, Width float64
	Who, Then   string
	Class       string
}

const (
	storyWidth = 920
	storyLeft  = 150
	storyRight = 760
	rowHeight  = 26
)

// drawBars draws some requests.
func drawBars(bars []loadtest.Bar) timeline {
	t := timeline{Width: storyWidth, Left: storyLeft, Right: storyRight, Height: float64(len(bars)*rowHeight) + 34}
	if len(bars) == 0 {
		return t
	}
	from, to := time.Duration(math.MaxInt64), time.Duration(0)
	for _, b := range bars {
		from, to = min(from, b.Start), max(to, b.End)
	}
	x := scale(0, milliseconds(to-from), storyLeft, storyRight)
	for i, b := range bars {
		start, end := x(milliseconds(b.Start-from)), x(milliseconds(b.End-from))
		class := "fine"
		if b.Over {
			class = "over"
		}
		t.Rows = append(t.Rows, row{X: start, Y: float64(i*rowHeight) + 8, Width: max(3, end-start), Class: class, Who: b.Who, Then: b.Then})
	}
	for _, v := range niceSteps(0, milliseconds(to-from)) {
		t.XTicks = append(t.XTicks, tick{x(v), fmt.Sprintf("+%.0f ms", v)})
	}
	return t
}
