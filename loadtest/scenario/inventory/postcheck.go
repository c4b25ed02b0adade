package inventory

import (
	"context"

	"shop/loadtest"
)

// buyAgain shows on every product that it can still be sold: an order is cancelled, and
// the unit that it gives back is bought. It returns the products where that failed.
func buyAgain(ctx context.Context, run *loadtest.Run, stock []Stock) []string {
	cancelled := map[string]*loadtest.Intent{}
	for _, r := range run.History.Records() {
		if lines := cart(r.Intent); r.Outcome == loadtest.OK && r.Action == Buy && len(lines) == 1 && lines[0].Quantity == 1 {
			if sku := lines[0].SKU; cancelled[sku] == nil {
				cancelled[sku] = intend("cancel-"+r.Key, Cancel, "/v1/orders/"+r.Made.String()+"/cancel", lines, nil)
			}
		}
	}
	var dead []string
	for n, s := range stock {
		one := []Stock{{s.SKU, 1}}
		again := intend("final-"+s.SKU, Buy, "/v1/orders", one, buyBody(one))
		back := cancelled[s.SKU]
		switch {
		case back == nil:
			dead = append(dead, s.SKU+": no order of it succeeded")
		case !run.Settle(ctx, n, back):
			dead = append(dead, s.SKU+": the last cancellation ended as "+run.History.Last(back.Key))
		case !run.Settle(ctx, n+1, again):
			dead = append(dead, s.SKU+": the last purchase ended as "+run.History.Last(again.Key))
		}
	}
	return dead
}
