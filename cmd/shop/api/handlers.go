package api

import (
	"context"
	"slices"
	"strings"

	"shop/inventory"
)

// handlers implements the generated StrictServerInterface: each method is one
// call into the domain. Authentication, limits and validation lie behind it.
type handlers struct{ *Server }

var _ StrictServerInterface = handlers{}

// PlaceOrder buys. Under one key it may be sent any number of times: the first
// that comes through is the order, all others are told about it.
func (s handlers) PlaceOrder(ctx context.Context, r PlaceOrderRequestObject) (PlaceOrderResponseObject, error) {
	key, err := parseKey(r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	strategy, err := s.strategyOf(r.Params.Strategy)
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

// ListProducts shows stock as it was a moment ago: a hint for people, never a
// ground to decide on. Only the purchase itself knows.
func (s handlers) ListProducts(ctx context.Context, _ ListProductsRequestObject) (ListProductsResponseObject, error) {
	products, err := s.cfg.Catalog.Products(ctx)
	if err != nil {
		return nil, err
	}
	out := ListProducts200JSONResponse{Products: make([]Product, 0, len(products))}
	for _, p := range products {
		out.Products = append(out.Products, productOf(p))
	}
	return out, nil
}

// GetProduct is one of them.
func (s handlers) GetProduct(ctx context.Context, r GetProductRequestObject) (GetProductResponseObject, error) {
	product, err := s.cfg.Catalog.Product(ctx, r.Sku)
	if err != nil {
		return nil, err
	}
	return GetProduct200JSONResponse(productOf(product)), nil
}

// GetAudit counts what is wrong with the books while they are written in: each
// number comes from one statement, and so from one moment.
func (s handlers) GetAudit(ctx context.Context, _ GetAuditRequestObject) (GetAuditResponseObject, error) {
	numbers, err := s.cfg.Audit(ctx)
	if err != nil {
		return nil, err
	}
	return GetAudit200JSONResponse(numbers), nil
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

// strategyOf lets a request choose in the lab. A "+" in a query arrives as a
// space, so that ?strategy=redis+row means what it looks like.
func (s *Server) strategyOf(wanted *string) (string, error) {
	if wanted == nil {
		return s.cfg.Strategy, nil
	}
	if s.cfg.Lab == nil {
		return "", explain(errMalformed, "?strategy is for the lab only (shop serve --lab).")
	}
	name := strings.ReplaceAll(*wanted, " ", "+")
	if !slices.Contains(s.cfg.Lab, name) {
		return "", explain(errMalformed, "No such strategy. There are: %s.", strings.Join(s.cfg.Lab, ", "))
	}
	return name, nil
}
