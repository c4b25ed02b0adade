// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"shop/wallet"
)

// CreditWallet adds money and the bonus. Here and in DebitWallet and PayFromWallet,
// ownership of the wallet is checked inside the transaction, under its lock.
func (s handlers) CreditWallet(c echo.Context, id WalletID, params CreditWalletParams) error {
	var body CreditWalletJSONRequestBody
	if err := bind(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	intent, err := fingerprintCredit(id, body.Amount)
	if err != nil {
		return err
	}
	service, req, err := s.walletRequest(ctx, params.IdempotencyKey, params.Strategy, intent)
	if err != nil {
		return err
	}
	reply, err := service.Credit(ctx, req, id, body.Amount)
	return s.send(c, reply, err)
}

// DebitWallet takes money out.
func (s handlers) DebitWallet(c echo.Context, id WalletID, params DebitWalletParams) error {
	var body DebitWalletJSONRequestBody
	if err := bind(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	intent, err := fingerprintDebit(id, body.Amount)
	if err != nil {
		return err
	}
	service, req, err := s.walletRequest(ctx, params.IdempotencyKey, params.Strategy, intent)
	if err != nil {
		return err
	}
	reply, err := service.Debit(ctx, req, id, body.Amount)
	return s.send(c, reply, err)
}

// PayFromWallet moves money to a wallet of any client.
func (s handlers) PayFromWallet(c echo.Context, id WalletID, params PayFromWalletParams) error {
	var body PayFromWalletJSONRequestBody
	if err := bind(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	payment := wallet.Payment{From: id, To: uuid.UUID(body.To), Amount: body.Amount}
	if payment.From == payment.To {
		return invalidAt("/to", "The payee is the paying wallet itself.")
	}
	intent, err := fingerprintPayment(payment)
	if err != nil {
		return err
	}
	service, req, err := s.walletRequest(ctx, params.IdempotencyKey, params.Strategy, intent)
	if err != nil {
		return err
	}
	reply, err := service.Pay(ctx, req, payment)
	return s.send(c, reply, err)
}

// GetWallet returns the majority-committed balance with its latest entries.
func (s handlers) GetWallet(c echo.Context, id WalletID) error {
	ctx := c.Request().Context()
	service, err := s.cfg.Wallets("")
	if err != nil {
		return err
	}
	found, err := service.Wallet(ctx, callerOf(ctx).ID, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, walletOf(found))
}

// walletRequest returns the Service and the idempotent request of a route that writes
// to a wallet.
func (s handlers) walletRequest(ctx context.Context, header string, wanted *string, intent [32]byte) (*wallet.Service, wallet.Request, error) {
	key, err := parseKey(header)
	if err != nil {
		return nil, wallet.Request{}, err
	}
	strategy, err := strategyOf(wanted, s.cfg.WalletLab)
	if err != nil {
		return nil, wallet.Request{}, err
	}
	service, err := s.cfg.Wallets(strategy)
	return service, wallet.Request{Client: callerOf(ctx).ID, Key: key, Fingerprint: intent}, err
}
