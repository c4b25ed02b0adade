package api

import (
	"context"
	"slices"
	"strings"
)

// handlers implements the generated StrictServerInterface: each method is one
// call into the domain. Authentication, limits and validation lie behind it.
type handlers struct{ *Server }

var _ StrictServerInterface = handlers{}

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

// strategyOf lets a request choose in the lab; otherwise it is the shop's own. A
// "+" in a query arrives as a space, so that ?strategy=redis+row means what it looks like.
func strategyOf(wanted *string, own string, lab []string) (string, error) {
	if wanted == nil {
		return own, nil
	}
	if lab == nil {
		return "", explain(errMalformed, "?strategy is for the lab only (shop serve --lab).")
	}
	name := strings.ReplaceAll(*wanted, " ", "+")
	if !slices.Contains(lab, name) {
		return "", explain(errMalformed, "No such strategy. There are: %s.", strings.Join(lab, ", "))
	}
	return name, nil
}
