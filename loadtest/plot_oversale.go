package loadtest

import (
	"fmt"
	"time"
)

// story is the time line of the first orders that got what was not there.
type story struct {
	SKU    string
	Put    int64
	Shelf  string // what the shelf still said, if somebody looked
	Rows   []bar
	Width  float64
	Height float64
	Left   float64
	Right  float64
	XTicks []tick
}

// bar is one order: when it was under way, where, and how many are sold with it.
type bar struct {
	X, Y, Width float64
	Who, Then   string
	Class       string
}

const (
	storyWidth  = 920
	storyLeft   = 150
	storyRight  = 760
	rowHeight   = 26
	salesBefore = 7
	salesAfter  = 6
)

// Story is nil if nothing was oversold.
func (r Result) Story() *story {
	if r.Oversale == nil {
		return nil
	}
	sales, from, to := r.Oversale.around(salesBefore, salesAfter)
	x := scale(0, milliseconds(to-from), storyLeft, storyRight)
	s := &story{SKU: r.Oversale.SKU, Put: r.Oversale.Put, Width: storyWidth, Left: storyLeft, Right: storyRight}
	for i, sale := range sales {
		start, end := x(milliseconds(sale.Attempt.Start-from)), x(milliseconds(sale.Attempt.End-from))
		class := "fine"
		if sale.Sold > r.Oversale.Put {
			class = "over"
		}
		s.Rows = append(s.Rows, bar{
			X: start, Y: float64(i*rowHeight) + 8, Width: max(3, end-start), Class: class,
			Who:  fmt.Sprintf("replica %d sells %d", sale.Attempt.Replica+1, sale.Units),
			Then: fmt.Sprintf("%d of %d sold", sale.Sold, r.Oversale.Put),
		})
	}
	s.Height = float64(len(sales)*rowHeight) + 34
	for _, v := range niceSteps(0, milliseconds(to-from)) {
		s.XTicks = append(s.XTicks, tick{x(v), fmt.Sprintf("+%.0f ms", v)})
	}
	s.Shelf = r.shelfBefore(r.Oversale)
	return s
}

// shelfBefore says what the shelf promised when the last real unit was gone.
func (r Result) shelfBefore(o *Oversale) string {
	for _, sale := range o.Sales {
		if sale.Sold <= o.Put {
			continue
		}
		n, seen := shelfAt(r.Samples, o.SKU, sale.Attempt.Start)
		if !seen {
			return ""
		}
		return fmt.Sprintf("%v into the run, when the first of them asked, the shelf still said %d left.", sale.Attempt.Start.Round(time.Millisecond), n)
	}
	return ""
}
