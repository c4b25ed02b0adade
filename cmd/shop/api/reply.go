// SPDX-License-Identifier: MIT

package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/transfer"
	"shop/wallet"
)

// Encode is the inventory.Encode of this API. Inside the transaction of the effect, it
// makes the bytes that every retry of the key gets. An outcome that is not stored is
// returned unchanged as the error.
func Encode(o inventory.Order, outcome error) (inventory.Reply, error) {
	return replyOf(orderOf(o), outcome)
}

// EncodeTransfer does the same for package transfer.
func EncodeTransfer(t transfer.Transfer, outcome error) (transfer.Reply, error) {
	return replyOf(transferOf(t), outcome)
}

// EncodeWallet does the same for package wallet.
func EncodeWallet(op wallet.Operation, outcome error) (wallet.Reply, error) {
	return replyOf(walletOperationOf(op), outcome)
}

func replyOf(v any, outcome error) (idempotency.Reply, error) {
	status := http.StatusCreated
	if outcome != nil {
		k := kindOf(outcome)
		if !k.stored {
			return idempotency.Reply{}, outcome
		}
		status, v = k.status, problemOf(outcome)
	}
	body, err := encode(v)
	return idempotency.Reply{Status: status, Body: body}, err
}

// encode appends a newline, as the generated replies do.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("api: encode the answer: %w", err)
	}
	return append(body, '\n'), nil
}

// send writes a Reply: status, header and body exactly as committed. A refusal is no error of this request, and is counted.
func (s handlers) send(c echo.Context, r idempotency.Reply, err error) error {
	if err != nil {
		return err
	}
	contentType := typeJSON
	if r.Status >= 400 {
		s.metrics.refusal(r.Body)
		contentType = typeProblem
	}
	for name, value := range r.Header {
		c.Response().Header().Set(name, value)
	}
	if r.Replayed {
		c.Response().Header().Set(headerReplayed, "true")
	}
	return c.Blob(r.Status, contentType, r.Body)
}

func orderOf(o inventory.Order) Order {
	out := Order{
		ID: o.ID, Status: OrderStatus(o.Status), Lines: make([]OrderLine, 0, len(o.Lines)),
		Total: o.Total, Currency: o.Currency, CreatedAt: o.CreatedAt.UTC(),
	}
	if o.CancelledAt != nil {
		at := o.CancelledAt.UTC()
		out.CancelledAt = &at
	}
	for _, l := range o.Lines {
		out.Lines = append(out.Lines, OrderLine{Sku: l.SKU, Quantity: l.Quantity, UnitPrice: l.UnitPrice})
	}
	return out
}

func productOf(p inventory.Product) Product {
	return Product{Sku: p.SKU, Name: p.Name, Price: p.Price, Currency: p.Currency, Stock: p.Stock, LimitPerClient: p.ClientMax}
}

func transferOf(t transfer.Transfer) Transfer {
	return Transfer{
		ID: t.ID, From: t.From, To: t.To, Amount: t.Amount, Settled: t.Settled, Currency: t.Currency,
		State: TransferState(t.State), CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, EndedAt: t.EndedAt,
	}
}

func accountOf(a transfer.Account) Account {
	out := Account{
		ID: a.ID, Currency: a.Currency, Balance: a.Balance, Held: a.Held, Available: a.Available(),
		Entries: make([]AccountEntry, 0, len(a.Entries)), CreatedAt: a.CreatedAt,
	}
	for _, e := range a.Entries {
		out.Entries = append(out.Entries, AccountEntry{Transfer: e.Transfer, Delta: e.Delta, Version: e.Version, CreatedAt: e.CreatedAt})
	}
	return out
}

func walletOperationOf(op wallet.Operation) WalletOperation {
	return WalletOperation{
		ID: op.ID, Kind: WalletOperationKind(op.Kind), Wallet: op.Wallet, To: op.To,
		Amount: op.Amount, Bonus: op.Bonus, Currency: op.Currency, CreatedAt: op.CreatedAt,
	}
}

func walletOf(w wallet.Wallet) Wallet {
	out := Wallet{
		ID: w.ID, Currency: w.Currency, Balance: w.Balance,
		Entries: make([]WalletEntry, 0, len(w.Entries)), CreatedAt: w.CreatedAt.UTC(),
	}
	for _, e := range w.Entries {
		out.Entries = append(out.Entries, WalletEntry{Operation: e.Operation, Delta: e.Delta, CreatedAt: e.CreatedAt.UTC()})
	}
	return out
}
