// SPDX-License-Identifier: MIT

package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"shop/inventory"
)

// PlaceOrder buys. All requests with one key make one order; retries get its stored
// reply.
func (s handlers) PlaceOrder(c echo.Context, params PlaceOrderParams) error {
	var body PlaceOrderJSONRequestBody
	if err := bind(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	key, err := parseKey(params.IdempotencyKey)
	if err != nil {
		return err
	}
	strategy, err := strategyOf(params.Strategy, s.cfg.Lab)
	if err != nil {
		return err
	}
	lines, err := linesOf(body.Lines)
	if err != nil {
		return err
	}
	intent, err := fingerprintOrder(lines)
	if err != nil {
		return err
	}
	buyer, err := s.cfg.Orders(strategy)
	if err != nil {
		return err
	}
	req := inventory.Request{Client: callerOf(ctx).ID, Key: key, Fingerprint: intent}
	reply, err := buyer.Buy(ctx, req, lines)
	return s.send(c, reply, err)
}

// CancelOrder returns the stock. It needs a key as a purchase does: without a key, a
// client whose reply was lost could not distinguish its own cancellation from another.
func (s handlers) CancelOrder(c echo.Context, id OrderID, params CancelOrderParams) error {
	ctx := c.Request().Context()
	key, err := parseKey(params.IdempotencyKey)
	if err != nil {
		return err
	}
	intent, err := fingerprintCancel(id)
	if err != nil {
		return err
	}
	req := inventory.Request{Client: callerOf(ctx).ID, Key: key, Fingerprint: intent}
	reply, err := s.cfg.Catalog.Cancel(ctx, req, id)
	return s.send(c, reply, err)
}

// GetOrder looks up by id and client together, so that no separate ownership check can be
// forgotten.
func (s handlers) GetOrder(c echo.Context, id OrderID) error {
	ctx := c.Request().Context()
	order, err := s.cfg.Catalog.Order(ctx, callerOf(ctx).ID, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, orderOf(order))
}

// linesOf also checks what the spec cannot express: each sku once.
func linesOf(in []LineRequest) ([]inventory.Line, error) {
	lines, seen := make([]inventory.Line, 0, len(in)), make(map[string]bool, len(in))
	for _, l := range in {
		if seen[l.Sku] {
			return nil, withDetail(errInvalid, "The sku %q occurs twice; add up the quantities.", l.Sku)
		}
		seen[l.Sku] = true
		lines = append(lines, inventory.Line{SKU: l.Sku, Quantity: l.Quantity, UnitPrice: l.UnitPrice})
	}
	return lines, nil
}
