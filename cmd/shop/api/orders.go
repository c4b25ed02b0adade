package api

import (
	"context"

	"shop/inventory"
)

// PlaceOrder buys. Under one key it may be sent any number of times: the first
// that comes through is the order, all others are told about it.
func (s handlers) PlaceOrder(ctx context.Context, r PlaceOrderRequestObject) (PlaceOrderResponseObject, error) {
	key, err := parseKey(r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	strategy, err := strategyOf(r.Params.Strategy, s.cfg.Strategy, s.cfg.Lab)
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
	return stored(reply), err
}

// CancelOrder gives back. It needs a key as much as a purchase does: without
// one, a client whose answer was lost could not tell its own cancel from somebody else's.
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
	return stored(reply), err
}

// GetOrder asks for id and client together. To fetch first and compare the owner
// afterwards is the check that is forgotten in the next handler.
func (s handlers) GetOrder(ctx context.Context, r GetOrderRequestObject) (GetOrderResponseObject, error) {
	order, err := s.cfg.Orders.Order(ctx, callerOf(ctx).ID, r.ID)
	if err != nil {
		return nil, err
	}
	return GetOrder200JSONResponse(orderOf(order)), nil
}

// linesOf also checks what the spec cannot say: each sku once.
func linesOf(in []LineRequest) ([]inventory.Line, error) {
	lines, seen := make([]inventory.Line, 0, len(in)), make(map[string]bool, len(in))
	for _, l := range in {
		if seen[l.Sku] {
			return nil, explain(errInvalid, "The sku %q is there twice; add the quantities up.", l.Sku)
		}
		seen[l.Sku] = true
		lines = append(lines, inventory.Line{SKU: l.Sku, Quantity: l.Quantity})
	}
	return lines, nil
}
