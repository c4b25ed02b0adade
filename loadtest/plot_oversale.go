package loadtest

import (
	"fmt"
	"time"
)

// story is the time line of the first orders that got what was not there: first
// how the shop lost count, then what came of it.
type story struct {
	SKU   string
	Put   int64
	Met   int      // sales that overlapped another one until it was sold out
	Shelf string   // what the shelf still said, if somebody looked
	Clash timeline // the first that were served at once
	Over  timeline // those that crossed the line
}

// timeline is a row for each sale.
type timeline struct {
	Rows                       []bar
	Width, Height, Left, Right float64
	XTicks                     []tick
}

// bar is one sale: when it was under way, where, and how many are sold with it.
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
	salesBefore = 5
	salesAfter  = 6
	salesClash  = 6
)

// Story is nil if nothing was oversold.
func (r Result) Story() *story {
	if r.Oversale == nil {
		return nil
	}
	o := r.Oversale
	end := o.crossing()
	first, met := clashes(o.Sales[:end])
	return &story{
		SKU: o.SKU, Put: o.Put, Met: met, Shelf: r.shelfBefore(o),
		Clash: o.timeline(o.Sales[first:min(first+salesClash, end)]),
		Over:  o.timeline(o.Sales[max(0, end-salesBefore):min(len(o.Sales), end+salesAfter)]),
	}
}

// clashes counts the sales that were under way together with another one on
// another replica, and gives the place of the first, a little before it.
func clashes(sales []Sale) (first, met int) {
	first = -1
	for i, a := range sales {
		for _, b := range sales {
			together := a.Attempt.Start < b.Attempt.End && b.Attempt.Start < a.Attempt.End
			if a.Key != b.Key && together && a.Attempt.Replica != b.Attempt.Replica {
				met++
				if first < 0 {
					first = max(0, i-1)
				}
				break
			}
		}
	}
	return max(0, first), met
}

// timeline draws some sales.
func (o *Oversale) timeline(sales []Sale) timeline {
	t := timeline{Width: storyWidth, Left: storyLeft, Right: storyRight, Height: float64(len(sales)*rowHeight) + 34}
	if len(sales) == 0 {
		return t
	}
	from, to := time.Duration(1<<62), time.Duration(0)
	for _, s := range sales {
		from, to = min(from, s.Attempt.Start), max(to, s.Attempt.End)
	}
	x := scale(0, milliseconds(to-from), storyLeft, storyRight)
	for i, sale := range sales {
		start, end := x(milliseconds(sale.Attempt.Start-from)), x(milliseconds(sale.Attempt.End-from))
		class := "fine"
		if sale.Sold > o.Put {
			class = "over"
		}
		t.Rows = append(t.Rows, bar{
			X: start, Y: float64(i*rowHeight) + 8, Width: max(3, end-start), Class: class,
			Who:  fmt.Sprintf("replica %d sells %d", sale.Attempt.Replica+1, sale.Units),
			Then: fmt.Sprintf("%d of %d sold", sale.Sold, o.Put),
		})
	}
	for _, v := range niceSteps(0, milliseconds(to-from)) {
		t.XTicks = append(t.XTicks, tick{x(v), fmt.Sprintf("+%.0f ms", v)})
	}
	return t
}

// shelfBefore says what the shelf promised when the last real unit was gone.
func (r Result) shelfBefore(o *Oversale) string {
	asked := o.Sales[o.crossing()].Attempt.Start
	n, seen := shelfAt(r.Samples, o.SKU, asked)
	if !seen {
		return ""
	}
	return fmt.Sprintf("When the first of these asked, %v into the run, the shelf still said %d left.", asked.Round(time.Millisecond), n)
}
