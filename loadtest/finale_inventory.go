package loadtest

import (
	"context"
	"net/http"
)

// finale shows on every product that life goes on: an order is cancelled, and
// the unit that it gives back is bought. It returns the products where that
// failed.
func (v *volley) finale(ctx context.Context, stock []Stock) []string {
	cancelled := map[string]*Intent{}
	for _, r := range v.history.Records() {
		if r.Outcome == OK && r.Action == Buy && len(r.Lines) == 1 && r.Lines[0].Quantity == 1 {
			if sku := r.Lines[0].SKU; cancelled[sku] == nil {
				cancelled[sku] = &Intent{
					Key: "cancel-" + r.Key, Action: Cancel, Method: http.MethodPost,
					Path: "/v1/orders/" + r.Made.String() + "/cancel", Lines: r.Lines,
				}
			}
		}
	}
	var dead []string
	for n, s := range stock {
		again := &Intent{Key: "final-" + s.SKU, Action: Buy, Method: http.MethodPost, Path: "/v1/orders", Lines: []Stock{{s.SKU, 1}}}
		again.Body = buyBody(again.Lines)
		back := cancelled[s.SKU]
		switch {
		case back == nil:
			dead = append(dead, s.SKU+": no order of it succeeded")
		case !v.settle(ctx, n, back):
			dead = append(dead, s.SKU+": the last cancellation ended as "+v.history.last(back.Key))
		case !v.settle(ctx, n+1, again):
			dead = append(dead, s.SKU+": the last purchase ended as "+v.history.last(again.Key))
		}
	}
	return dead
}
