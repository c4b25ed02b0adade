// SPDX-License-Identifier: MIT

package api

import (
	"context"

	"shop/inventory"
)

// PlaceOrder buys. All requests with one key make one order; retries get its stored
// reply.
func (s handlers) PlaceOrder(ctx context.Context, r PlaceOrderRequestObject) (PlaceOrderResponseObject, error) {
	key, err := parseKey(r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	strategy, err := strategyOf(r.Params.Strategy, s.cfg.Lab)
	if err != nil {
		return nil, err
	}
	lines, err := linesOf(r.Body.Lines)
	if err != nil {
		return nil, err
	}
	intent, err := fingerprintOrder(lines)
	if err != nil {
		return nil, err
	}
	req := inventory.Request{Client: callerOf(ctx).ID, Key: key, Fingerprint: intent}
	reply, err := s.cfg.Orders.BuyWith(ctx, strategy, req, lines)
	return s.stored(reply), err
}

// CancelOrder returns the stock. It needs a key as a purchase does: without a key, a
// client whose reply was lost could not distinguish its own cancellation from another.
func (s handlers) CancelOrder(ctx context.Context, r CancelOrderRequestObject) (CancelOrderResponseObject, error) {
	key, err := parseKey(r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	intent, err := fingerprintCancel(r.ID)
	if err != nil {
		return nil, err
	}
	req := inventory.Request{Client: callerOf(ctx).ID, Key: key, Fingerprint: intent}
	reply, err := s.cfg.Orders.Cancel(ctx, req, r.ID)
	return s.stored(reply), err
}

// GetOrder looks up by id and client together, so that no separate ownership check can be
// forgotten.
func (s handlers) GetOrder(ctx context.Context, r GetOrderRequestObject) (GetOrderResponseObject, error) {
	order, err := s.cfg.Orders.Order(ctx, callerOf(ctx).ID, r.ID)
	if err != nil {
		return nil, err
	}
	return GetOrder200JSONResponse(orderOf(order)), nil
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
