// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/labstack/echo/v4"
	"github.com/oapi-codegen/runtime"
)

// handlers implements the generated ServerInterface: each method is one call into
// the domain. Authentication, limits and validation have already passed.
type handlers struct{ *Server }

var _ ServerInterface = handlers{}

// bind fills body with the value that validate has kept: a second decoding would match the names of members
// case-insensitively. It leaves body as it is if there was none.
func bind(c echo.Context, body any) error {
	if validated, ok := c.Request().Body.(interface{ ValidatedValue() any }); ok && runtime.BindJSONValue(validated.ValidatedValue(), body) == nil {
		return nil
	}
	return new(echo.DefaultBinder).BindBody(c, body)
}

// ListProducts returns the committed stock. It is a hint only: the purchase checks the
// stock under its lock.
func (s handlers) ListProducts(c echo.Context) error {
	ctx := c.Request().Context()
	products, err := s.cfg.Catalog.Products(ctx)
	if err != nil {
		return err
	}
	out := ProductList{Products: make([]Product, 0, len(products))}
	for _, p := range products {
		out.Products = append(out.Products, productOf(p))
	}
	return c.JSON(http.StatusOK, out)
}

// GetProduct returns one product.
func (s handlers) GetProduct(c echo.Context, sku SKU) error {
	ctx := c.Request().Context()
	product, err := s.cfg.Catalog.Product(ctx, sku)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, productOf(product))
}

// GetAudit counts violations of the invariants while the shop serves. Each number comes
// from one statement, so from one snapshot. Large tables take longer than a request may: then it says so.
func (s handlers) GetAudit(c echo.Context) error {
	ctx := c.Request().Context()
	numbers, err := s.cfg.Audit(ctx)
	var pg *pgconn.PgError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &pg) && pg.Code == "57014": // statement_timeout
		return withDetail(fmt.Errorf("%w: %w", errTooLong, err), tooLong, s.cfg.Limits.Request)
	case err != nil:
		return err
	}
	return c.JSON(http.StatusOK, numbers)
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
