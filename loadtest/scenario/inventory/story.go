package inventory

import (
	"fmt"
	"math"
	"slices"
	"time"

	"shop/loadtest"
)

// How many sales of a story are drawn.
const (
	salesBefore = 5
	salesAfter  = 6
	salesClash  = 6
)

// story tells how the first product was sold beyond what was there: first how the shop
// lost count, then the orders that got what was not there. nil: nothing was oversold.
func (o *oversale) story(samples []loadtest.Sample) *loadtest.Story {
	if o == nil {
		return nil
	}
	end := o.crossing()
	place, met := clashes(o.Sales[:end])
	return &loadtest.Story{
		Title: "The first that got what was not there",
		Parts: []loadtest.StoryPart{
			{
				Text: fmt.Sprintf("There were %d units of %s. Where bars lie over each other, two replicas had a buyer of it at the same moment: "+
					"one that reads the stock before the other has written puts a number back in which the other's sale is forgotten. "+
					"%d sales met another one like that before the last unit was gone. It looked like this:", o.Put, o.SKU, met),
				Bars: o.bars(o.Sales[place:min(place+salesClash, end)]),
			},
			{
				Text: o.shelfBefore(samples) + " So it went on selling:",
				Bars: o.bars(o.Sales[max(0, end-salesBefore):min(len(o.Sales), end+salesAfter)]),
			},
		},
	}
}

func (o *oversale) bars(sales []sale) (bars []loadtest.Bar) {
	for _, s := range sales {
		bars = append(bars, loadtest.Bar{
			Start: s.Attempt.Start, End: s.Attempt.End, Over: s.Sold > o.Put,
			Who:  fmt.Sprintf("replica %d sells %d", s.Attempt.Replica+1, s.Units),
			Then: fmt.Sprintf("%d of %d sold", s.Sold, o.Put),
		})
	}
	return bars
}

// clashes counts the sales that were under way together with another one on
// another replica, and gives the place of a few in a row where most of them are,
// and closest together.
func clashes(sales []sale) (place, met int) {
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
func meets(a sale, sales []sale) bool {
	return slices.ContainsFunc(sales, func(b sale) bool {
		together := a.Attempt.Start < b.Attempt.End && b.Attempt.Start < a.Attempt.End
		return together && a.Attempt.Replica != b.Attempt.Replica
	})
}

// span is when some sales were under way.
func span(sales []sale) (from, to time.Duration) {
	from = time.Duration(math.MaxInt64)
	for _, s := range sales {
		from, to = min(from, s.Attempt.Start), max(to, s.Attempt.End)
	}
	return from, to
}

// shelfBefore says what the shelf promised when the last real unit was gone.
func (o *oversale) shelfBefore(samples []loadtest.Sample) string {
	asked := o.Sales[o.crossing()].Attempt.Start
	n, seen := shelfAt(samples, o.SKU, asked)
	if !seen {
		return ""
	}
	return fmt.Sprintf("When the first of these asked, %v into the run, the shelf still said %d left.", asked.Round(time.Millisecond), n)
}

// shelfAt is what the shelf said of a product at the last look before a moment.
func shelfAt(samples []loadtest.Sample, sku string, at time.Duration) (n int64, seen bool) {
	for _, s := range samples {
		for _, l := range s.Levels {
			if l.Name == sku && s.At <= at {
				n, seen = l.Says, true
			}
		}
	}
	return n, seen
}
