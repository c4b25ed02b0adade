// SPDX-License-Identifier: MIT

package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/transfer"
	"shop/wallet"
)

const (
	typeProblem = "application/problem+json"
	typeJSON    = "application/json"
)

// detailed is an error with a text for the client. Only these texts, the table's, and
// fields of known errors leave the process; err.Error() never does.
type detailed struct {
	err     error
	detail  string
	pointer string
}

func (e *detailed) Error() string { return e.err.Error() + ": " + e.detail }
func (e *detailed) Unwrap() error { return e.err }

func withDetail(err error, format string, args ...any) error {
	return &detailed{err: err, detail: fmt.Sprintf(format, args...)}
}

// problemOf describes an error to the client: type and status from the table, and the
// error's fields. Types never change; title and detail are for people and may change.
func problemOf(err error) Problem {
	k := kindOf(err)
	p := Problem{Type: k.typ, Title: k.title, Status: k.status, Detail: k.detail}
	if k.typ == TypeInternal && errors.Is(err, idempotency.ErrNotDone) {
		p.Detail = noEffect
	}
	if e, ok := errors.AsType[*detailed](err); ok {
		p.Detail, p.Pointer = e.detail, e.pointer
	}
	if e, ok := errors.AsType[*inventory.UnknownSKUError](err); ok && k.typ == TypeNotFound {
		p.Sku, p.Detail = e.SKU, fmt.Sprintf("There is no product %q.", e.SKU)
	}
	if e, ok := errors.AsType[*inventory.OutOfStockError](err); ok && k.typ == TypeOutOfStock {
		p.Sku, p.Left = e.SKU, &e.Left
		p.Detail = fmt.Sprintf("%d of %q wanted, %d left.", e.Wanted, e.SKU, e.Left)
	}
	if e, ok := errors.AsType[*inventory.PurchaseLimitError](err); ok && k.typ == TypePurchaseLimit {
		p.Sku, p.Bought, p.LimitPerClient = e.SKU, &e.Bought, &e.Max
		p.Detail = fmt.Sprintf("%d of %q wanted, %d bought, %d at most.", e.Wanted, e.SKU, e.Bought, e.Max)
	}
	if e, ok := errors.AsType[*inventory.PriceChangedError](err); ok && k.typ == TypePriceChanged {
		p.Sku, p.UnitPrice = e.SKU, &e.Price
		p.Detail = fmt.Sprintf("%d seen for %q, it costs %d.", e.Seen, e.SKU, e.Price)
	}
	if e, ok := errors.AsType[*transfer.InsufficientFundsError](err); ok && k.typ == TypeInsufficientFunds {
		p.Account, p.Wanted, p.Available = &e.Account, &e.Wanted, &e.Available
		p.Detail = fmt.Sprintf("%d wanted, %d available.", e.Wanted, e.Available)
	}
	if e, ok := errors.AsType[*wallet.InsufficientFundsError](err); ok && k.typ == TypeInsufficientFunds {
		p.Wallet, p.Wanted, p.Available = &e.Wallet, &e.Wanted, &e.Balance
		p.Detail = fmt.Sprintf("%d wanted, %d available.", e.Wanted, e.Balance)
	}
	return p
}

// answer is Echo's HTTPErrorHandler: the only place where an error becomes a response.
func (s *Server) answer(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	k, p := kindOf(err), problemOf(err)
	h := c.Response().Header()
	if k.wait > 0 {
		h.Set("Retry-After", strconv.Itoa(k.wait))
	}
	if k.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="shop"`)
	}
	body, err := encode(p)
	if err == nil {
		err = c.Blob(k.status, typeProblem, body)
	}
	if err != nil { // the client has disconnected
		s.log.DebugContext(c.Request().Context(), "problem not sent", "error", err)
	}
}
