// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"shop/transfer"
)

// CreateTransfer moves money, or holds it. Ownership of the debited account is checked
// inside the transaction, under its lock.
func (s handlers) CreateTransfer(c echo.Context, params CreateTransferParams) error {
	var body CreateTransferJSONRequestBody
	if err := bind(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	move, expiresIn, err := moveOf(body)
	if err != nil {
		return err
	}
	intent, err := fingerprintTransfer(move, expiresIn)
	if err != nil {
		return err
	}
	service, req, err := s.transferRequest(ctx, params.IdempotencyKey, params.Strategy, intent)
	if err != nil {
		return err
	}
	if expiresIn > 0 {
		reply, err := service.Reserve(ctx, req, move, expiresIn)
		return s.send(c, reply, err)
	}
	reply, err := service.Transfer(ctx, req, move)
	return s.send(c, reply, err)
}

// PostTransfer moves held money: the amount in the body, or all of it.
func (s handlers) PostTransfer(c echo.Context, id TransferID, params PostTransferParams) error {
	var body PostTransferJSONRequestBody
	if err := bind(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	intent, err := fingerprintPost(id, body.Amount)
	if err != nil {
		return err
	}
	service, req, err := s.transferRequest(ctx, params.IdempotencyKey, params.Strategy, intent)
	if err != nil {
		return err
	}
	reply, err := service.Post(ctx, req, id, body.Amount)
	return s.send(c, reply, err)
}

// VoidTransfer releases held money.
func (s handlers) VoidTransfer(c echo.Context, id TransferID, params VoidTransferParams) error {
	ctx := c.Request().Context()
	intent, err := fingerprintVoid(id)
	if err != nil {
		return err
	}
	service, req, err := s.transferRequest(ctx, params.IdempotencyKey, params.Strategy, intent)
	if err != nil {
		return err
	}
	reply, err := service.Void(ctx, req, id)
	return s.send(c, reply, err)
}

// GetTransfer looks up by id and client together, as GetOrder does.
func (s handlers) GetTransfer(c echo.Context, id TransferID) error {
	ctx := c.Request().Context()
	t, err := s.cfg.Books.Find(ctx, callerOf(ctx).ID, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, transferOf(t))
}

// GetAccount returns the committed balance with its latest entries.
func (s handlers) GetAccount(c echo.Context, id UUID) error {
	ctx := c.Request().Context()
	account, err := s.cfg.Books.Account(ctx, callerOf(ctx).ID, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, accountOf(account))
}

// transferRequest returns the Service and the idempotent request of a route that moves
// money.
func (s handlers) transferRequest(ctx context.Context, header string, wanted *string, intent [32]byte) (*transfer.Service, transfer.Request, error) {
	key, err := parseKey(header)
	if err != nil {
		return nil, transfer.Request{}, err
	}
	strategy, err := strategyOf(wanted, s.cfg.TransferLab)
	if err != nil {
		return nil, transfer.Request{}, err
	}
	service, err := s.cfg.Transfers(strategy)
	return service, transfer.Request{Client: callerOf(ctx).ID, Key: key, Fingerprint: intent}, err
}

// moveOf also checks what the spec cannot express; expiresIn is 0 without a hold.
func moveOf(r TransferRequest) (move transfer.Move, expiresIn time.Duration, err error) {
	move = transfer.Move{From: uuid.UUID(r.From), To: uuid.UUID(r.To), Amount: r.Amount, Currency: r.Currency}
	switch {
	case move.From == move.To:
		return move, 0, invalidAt("/to", "From and to are the same account.")
	case r.Pending != (r.ExpiresIn != ""):
		return move, 0, invalidAt("/expires_in", "Send pending and expires_in together, or neither to move the money at once.")
	case !r.Pending:
		return move, 0, nil
	}
	expiresIn, err = time.ParseDuration(r.ExpiresIn)
	if err != nil || expiresIn < time.Millisecond || expiresIn > transfer.HoldMax {
		return move, 0, invalidAt("/expires_in", "Send a duration from 1ms to 720h, as in 90s or 15m.")
	}
	return move, expiresIn, nil
}

// invalidAt is errInvalid with a JSON pointer into the body.
func invalidAt(pointer, detail string) error {
	return &detailed{err: errInvalid, detail: detail, pointer: pointer}
}
