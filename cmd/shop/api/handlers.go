// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// handlers implements the generated StrictServerInterface: each method is one call into
// the domain. Authentication, limits and validation have already passed.
type handlers struct{ *Server }

var _ StrictServerInterface = handlers{}

// ListProducts returns the committed stock. It is a hint only: the purchase checks the
// stock under its lock.
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

// GetProduct returns one product.
func (s handlers) GetProduct(ctx context.Context, r GetProductRequestObject) (GetProductResponseObject, error) {
	product, err := s.cfg.Catalog.Product(ctx, r.Sku)
	if err != nil {
		return nil, err
	}
	return GetProduct200JSONResponse(productOf(product)), nil
}

// GetAudit counts violations of the invariants while the shop serves. Each number comes
// from one statement, so from one snapshot. Large tables take longer than a request may: then it says so.
func (s handlers) GetAudit(ctx context.Context, _ GetAuditRequestObject) (GetAuditResponseObject, error) {
	numbers, err := s.cfg.Audit(ctx)
	var pg *pgconn.PgError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &pg) && pg.Code == "57014": // statement_timeout
		return nil, withDetail(fmt.Errorf("%w: %w", errTooLong, err), tooLong, s.cfg.Limits.Request)
	case err != nil:
		return nil, err
	}
	return GetAudit200JSONResponse(numbers), nil
}

const queryStrategy = "strategy"

// strategyName restores a "+", which in a query decodes to a space: ?strategy=redis+row.
func strategyName(value string) string { return strings.ReplaceAll(value, " ", "+") }

// strategyOf returns "" for the configured strategy, or in the lab the requested one.
func strategyOf(wanted *string, lab []string) (string, error) {
	if wanted == nil {
		return "", nil
	}
	if lab == nil {
		return "", withDetail(errMalformed, "?strategy is allowed in the lab only (shop serve --lab).")
	}
	name := strategyName(*wanted)
	if !slices.Contains(lab, name) {
		return "", withDetail(errMalformed, "This server cannot use that strategy. There are: %s.", strings.Join(lab, ", "))
	}
	return name, nil
}
