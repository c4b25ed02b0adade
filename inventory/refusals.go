// SPDX-License-Identifier: MIT

package inventory

import (
	"errors"
	"fmt"
	"slices"
)

// Errors after which certainly nothing changed.
var (
	ErrOutOfStock       = errors.New("inventory: out of stock")                      // stored under the key
	ErrPurchaseLimit    = errors.New("inventory: purchase limit reached")            // stored under the key
	ErrPriceChanged     = errors.New("inventory: price changed")                     // stored under the key
	ErrAlreadyCancelled = errors.New("inventory: order already cancelled")           // stored under the key
	ErrStockLimit       = errors.New("inventory: more units than a stock can count") // stored under the key
	ErrNotFound         = errors.New("inventory: not found")
	ErrInvalid          = errors.New("inventory: invalid request")
)

// UnknownSKUError names a product that does not exist. It matches ErrNotFound.
type UnknownSKUError struct{ SKU string }

func (e *UnknownSKUError) Error() string        { return fmt.Sprintf("inventory: unknown sku %q", e.SKU) }
func (e *UnknownSKUError) Is(target error) bool { return target == ErrNotFound }

// OutOfStockError names a product with too little stock. It matches ErrOutOfStock.
type OutOfStockError struct {
	SKU    string
	Wanted int64
	Left   int64
}

func (e *OutOfStockError) Error() string {
	return fmt.Sprintf("inventory: out of stock: %d of %q wanted, %d left", e.Wanted, e.SKU, e.Left)
}
func (e *OutOfStockError) Is(target error) bool { return target == ErrOutOfStock }

// PriceChangedError names a product whose price is not the one that the buyer has seen. It matches ErrPriceChanged.
type PriceChangedError struct {
	SKU         string
	Seen, Price int64
}

func (e *PriceChangedError) Error() string {
	return fmt.Sprintf("inventory: price changed: %d seen for %q, it costs %d", e.Seen, e.SKU, e.Price)
}
func (e *PriceChangedError) Is(target error) bool { return target == ErrPriceChanged }

// isRefusal reports whether err is final, and stored under the key.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{ErrOutOfStock, ErrPurchaseLimit, ErrPriceChanged, ErrAlreadyCancelled, ErrStockLimit},
		func(refusal error) bool { return errors.Is(err, refusal) })
}
