// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

// oversale describes the sales of the first product that was oversold.
type oversale struct {
	SKU   string
	Put   int64 // units in the plan
	Sales []sale
}

// sale is an order of the product. Sales are in the order of their movements in the database.
type sale struct {
	Key     string
	Units   int64
	Sold    int64 // units up to and including this sale
	Attempt traffic.Attempt
}

// findOversale finds the first product that was oversold, with its sales to the
// keys in records; nil: none. It needs the tables of LoadHistory.
func findOversale(ctx context.Context, conn *pgx.Conn, records []traffic.Record) (*oversale, error) {
	rows, err := conn.Query(ctx, `
WITH sales AS (
	SELECT m.id, m.sku, o.id AS order_id, o.idempotency_key, -m.quantity AS units,
	       sum(-m.quantity) OVER (PARTITION BY m.sku ORDER BY m.id) AS sold,
	       (SELECT quantity FROM proof_opening p WHERE p.sku = m.sku) AS put
	FROM stock_movements m
	JOIN orders o ON o.id = m.order_id AND o.status = 'confirmed'
	WHERE m.kind = 'sale'
), first AS (
	SELECT sku FROM sales WHERE sold > put ORDER BY id LIMIT 1
)
SELECT sku, put, order_id, idempotency_key, units::bigint, sold::bigint
FROM sales
WHERE sku = (SELECT sku FROM first)
ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("oversale: %w", err)
	}
	answered := attemptsThatBought(records)
	var o oversale
	var s sale
	var order uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&o.SKU, &o.Put, &order, &s.Key, &s.Units, &s.Sold}, func() error {
		var bought bool
		if s.Attempt, bought = answered[order]; bought {
			o.Sales = append(o.Sales, s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("oversale: %w", err)
	}
	if len(o.Sales) == 0 {
		return nil, nil
	}
	return &o, nil
}

// attemptsThatBought returns, for each order, the first successful attempt of its key.
func attemptsThatBought(records []traffic.Record) map[uuid.UUID]traffic.Attempt {
	bought := map[uuid.UUID]traffic.Attempt{}
	for _, r := range records {
		for _, a := range r.Attempts {
			if first, seen := bought[r.Made]; r.Action == Buy && a.Outcome == traffic.OK && (!seen || a.End < first.End) {
				bought[r.Made] = a
			}
		}
	}
	return bought
}

// crossing returns the index of the first sale beyond the stock, or of the last sale if
// the answer to that first sale was not recorded.
func (o *oversale) crossing() int {
	for i, s := range o.Sales {
		if s.Sold > o.Put {
			return i
		}
	}
	return len(o.Sales) - 1
}

// How many sales a story draws.
const (
	salesBefore = 5
	salesAfter  = 6
	salesClash  = 6
)

// story shows how the first product was oversold: first how updates of the stock were
// lost, then the sales beyond the stock. nil: nothing was oversold.
func (o *oversale) story(samples []judge.Sample) *loadtest.Story {
	if o == nil {
		return nil
	}
	end := o.crossing()
	place, met := clashes(o.Sales[:end])
	return &loadtest.Story{
		Title: "The first sale beyond the stock",
		Parts: []loadtest.StoryPart{
			{
				Text: fmt.Sprintf("There were %d units of %s. Where bars overlap, two replicas sold it at the same moment: "+
					"a replica that reads the stock before the other has written puts back a number without the other's sale. "+
					"%d sales met a sale of another replica like that before the last unit was gone. For example:", o.Put, o.SKU, met),
				Bars: o.bars(o.Sales[place:min(place+salesClash, end)]),
			},
			{
				Text: o.shelfBefore(samples) + " So the shop went on selling:",
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

// clashes counts the sales that overlapped a sale on another replica. place is the
// start of the window of salesClash sales with the most overlaps, and among those the
// shortest in time.
func clashes(sales []sale) (place, met int) {
	clash := make([]int, len(sales)) // 1: the sale overlapped another
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

// meets reports whether a sale overlaps a sale on another replica.
func meets(a sale, sales []sale) bool {
	return slices.ContainsFunc(sales, func(b sale) bool {
		together := a.Attempt.Start < b.Attempt.End && b.Attempt.Start < a.Attempt.End
		return together && a.Attempt.Replica != b.Attempt.Replica
	})
}

// span returns the time from the first start to the last end of some sales.
func span(sales []sale) (from, to time.Duration) {
	from = time.Duration(math.MaxInt64)
	for _, s := range sales {
		from, to = min(from, s.Attempt.Start), max(to, s.Attempt.End)
	}
	return from, to
}

// shelfBefore describes the stock in the table when the first sale beyond the real stock began.
func (o *oversale) shelfBefore(samples []judge.Sample) string {
	asked := o.Sales[o.crossing()].Attempt.Start
	n, seen := shelfAt(samples, o.SKU, asked)
	if !seen {
		return ""
	}
	return fmt.Sprintf("When the first of these requests was sent, %v into the run, the table still showed %d left.", asked.Round(time.Millisecond), n)
}

// shelfAt returns the stock of a product in the last sample before a moment.
func shelfAt(samples []judge.Sample, sku string, at time.Duration) (n int64, seen bool) {
	for _, s := range samples {
		if says, has := s.Level(sku); has && s.At <= at {
			n, seen = says, true
		}
	}
	return n, seen
}
