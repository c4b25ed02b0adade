package loadtest

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// story is the time line of the first orders that got what was not there: first
// how the shop lost count, then what came of it.
type story struct {
	SKU   string
	Put   int64
	Met   int      // sales that overlapped another one until it was sold out
	Shelf string   // what the shelf still said, if somebody looked
	Clash timeline // some that were served at once
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
	place, met := clashes(o.Sales[:end])
	return &story{
		SKU: o.SKU, Put: o.Put, Met: met, Shelf: r.shelfBefore(o),
		Clash: o.timeline(o.Sales[place:min(place+salesClash, end)]),
		Over:  o.timeline(o.Sales[max(0, end-salesBefore):min(len(o.Sales), end+salesAfter)]),
	}
}

// clashes counts the sales that were under way together with another one on
// another replica, and gives the place of a few in a row where most of them are,
// and closest together.
func clashes(sales []Sale) (place, met int) {
	clash := make([]int, len(sales)) // 1: it met another
	for i, s := range sales {
		if meets(s, sales) {
			clash[i] = 1
			met++
		}
	}
	best, bestSpan := -1, time.Duration(0)
	for i := 0; i+min(salesClash, len(sales)) <= len(sales); i++ {
		few := sales[i:min(i+salesClash, len(sales))]
		from, to := span(few)
		count := 0
		for k := range few {
			count += clash[i+k]
		}
		if count > best || count == best && to-from < bestSpan {
			place, best, bestSpan = i, count, to-from
		}
	}
	return place, met
}

// meets tells whether a sale overlaps one on another replica.
func meets(a Sale, sales []Sale) bool {
	return slices.ContainsFunc(sales, func(b Sale) bool {
		together := a.Attempt.Start < b.Attempt.End && b.Attempt.Start < a.Attempt.End
		return together && a.Attempt.Replica != b.Attempt.Replica
	})
}

// span is when some sales were under way.
func span(sales []Sale) (from, to time.Duration) {
	from = time.Duration(math.MaxInt64)
	for _, s := range sales {
		from, to = min(from, s.Attempt.Start), max(to, s.Attempt.End)
	}
	return from, to
}

// timeline draws some sales.
func (o *Oversale) timeline(sales []Sale) timeline {
	t := timeline{Width: storyWidth, Left: storyLeft, Right: storyRight, Height: float64(len(sales)*rowHeight) + 34}
	if len(sales) == 0 {
		return t
	}
	from, to := span(sales)
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
