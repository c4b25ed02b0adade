package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// AddProduct makes a product with its opening stock, once: if the sku exists,
// nothing changes and created is false. So it may be repeated after any error.
func (s *Service) AddProduct(ctx context.Context, p Product) (created bool, err error) {
	if err := checkSKU(p.SKU); err != nil {
		return false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	// One statement, so that no product is without its opening movement.
	tag, err := s.pool.Exec(ctx, `
		WITH added AS (
			INSERT INTO products (sku, name, price, currency, stock)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (sku) DO NOTHING
			RETURNING sku, stock)
		INSERT INTO stock_movements (sku, kind, quantity)
		SELECT sku, 'opening', stock FROM added`, p.SKU, p.Name, p.Price, p.Currency, p.Stock)
	if err != nil {
		return false, fmt.Errorf("inventory: add product %q: %w", p.SKU, invalidIfData(err))
	}
	return tag.RowsAffected() == 1, nil
}

// Products lists all products in order of sku.
func (s *Service) Products(ctx context.Context) ([]Product, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, _ := s.pool.Query(ctx, `SELECT sku, name, price, currency, stock FROM products ORDER BY sku`)
	products, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Product])
	if err != nil {
		return nil, fmt.Errorf("inventory: list products: %w", err)
	}
	return products, nil
}

// Product finds one product, else UnknownSKUError.
func (s *Service) Product(ctx context.Context, sku string) (Product, error) {
	if checkSKU(sku) != nil { // PostgreSQL would refuse the bytes
		return Product{}, &UnknownSKUError{SKU: sku}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, _ := s.pool.Query(ctx, `SELECT sku, name, price, currency, stock FROM products WHERE sku = $1`, sku)
	product, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Product])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Product{}, &UnknownSKUError{SKU: sku}
	case err != nil:
		return Product{}, fmt.Errorf("inventory: product %q: %w", sku, err)
	}
	return product, nil
}

// invalidIfData says ErrInvalid where the server refused a value (class 22 data
// exception, 23514 check violation), and leaves other errors as they are.
func invalidIfData(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code == "23514") {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}
