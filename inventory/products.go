// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Product is a product and its stock. Price is in minor units of Currency (ISO 4217).
type Product struct {
	SKU       string
	Name      string
	Price     int64
	Currency  string
	Stock     int64
	ClientMax *int64 // how many units one client may have in confirmed orders; nil: no limit
}

// AddProduct creates a product with its opening stock. If the sku exists, nothing
// changes and created is false, so AddProduct may be retried after any error.
func (s *Service) AddProduct(ctx context.Context, p Product) (created bool, err error) {
	if err := checkSKU(p.SKU); err != nil {
		return false, err
	}
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	// One statement, so that every product has its opening movement.
	tag, err := s.cfg.Pool.Exec(ctx, `
		WITH added AS (
			INSERT INTO products (sku, name, price, currency, stock, client_max)
			VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (sku) DO NOTHING
			RETURNING sku, stock)
		INSERT INTO stock_movements (sku, kind, quantity)
		SELECT sku, 'opening', stock FROM added`, p.SKU, p.Name, p.Price, p.Currency, p.Stock, p.ClientMax)
	if err != nil {
		return false, fmt.Errorf("inventory: add product %q: %w", p.SKU, invalidIfData(err))
	}
	return tag.RowsAffected() == 1, nil
}

// Products lists all products, ordered by sku.
func (s *Service) Products(ctx context.Context) ([]Product, error) {
	products, err := s.products(ctx, `SELECT sku, name, price, currency, stock, client_max FROM products_with_slots ORDER BY sku`)
	if err != nil {
		return nil, fmt.Errorf("inventory: list products: %w", err)
	}
	return products, nil
}

// Product finds one product. If there is none, it returns an UnknownSKUError.
func (s *Service) Product(ctx context.Context, sku string) (Product, error) {
	if checkSKU(sku) != nil { // PostgreSQL would refuse the bytes
		return Product{}, &UnknownSKUError{SKU: sku}
	}
	found, err := s.products(ctx, `SELECT sku, name, price, currency, stock, client_max FROM products_with_slots WHERE sku = $1`, sku)
	switch {
	case err != nil:
		return Product{}, fmt.Errorf("inventory: product %q: %w", sku, err)
	case len(found) == 0:
		return Product{}, &UnknownSKUError{SKU: sku}
	}
	return found[0], nil
}

func (s *Service) products(ctx context.Context, sql string, args ...any) (list []Product, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, sql, args...)
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Product])
		return err
	})
	return list, err
}

// invalidIfData adds ErrInvalid if the server refused a value (class 22 data
// exception, 23514 check violation), and returns other errors unchanged.
func invalidIfData(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code == "23514") {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}
