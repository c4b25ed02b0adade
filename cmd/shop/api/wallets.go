// SPDX-License-Identifier: MIT

package api

import (
	"context"

	"github.com/google/uuid"

	"shop/wallet"
)

// CreditWallet adds money and the bonus. Here and in DebitWallet and PayFromWallet,
// ownership of the wallet is checked inside the transaction, under its lock.
func (s handlers) CreditWallet(ctx context.Context, r CreditWalletRequestObject) (CreditWalletResponseObject, error) {
	intent, err := fingerprintCredit(r.ID, r.Body.Amount)
	if err != nil {
		return nil, err
	}
	service, req, err := s.walletRequest(ctx, r.Params.IdempotencyKey, r.Params.Strategy, intent)
	if err != nil {
		return nil, err
	}
	reply, err := service.Credit(ctx, req, r.ID, r.Body.Amount)
	return s.stored(reply), err
}

// DebitWallet takes money out.
func (s handlers) DebitWallet(ctx context.Context, r DebitWalletRequestObject) (DebitWalletResponseObject, error) {
	intent, err := fingerprintDebit(r.ID, r.Body.Amount)
	if err != nil {
		return nil, err
	}
	service, req, err := s.walletRequest(ctx, r.Params.IdempotencyKey, r.Params.Strategy, intent)
	if err != nil {
		return nil, err
	}
	reply, err := service.Debit(ctx, req, r.ID, r.Body.Amount)
	return s.stored(reply), err
}

// PayFromWallet moves money to a wallet of any client.
func (s handlers) PayFromWallet(ctx context.Context, r PayFromWalletRequestObject) (PayFromWalletResponseObject, error) {
	payment := wallet.Payment{From: r.ID, To: uuid.UUID(r.Body.To), Amount: r.Body.Amount}
	if payment.From == payment.To {
		return nil, invalidAt("/to", "The payee is the paying wallet itself.")
	}
	intent, err := fingerprintPayment(payment)
	if err != nil {
		return nil, err
	}
	service, req, err := s.walletRequest(ctx, r.Params.IdempotencyKey, r.Params.Strategy, intent)
	if err != nil {
		return nil, err
	}
	reply, err := service.Pay(ctx, req, payment)
	return s.stored(reply), err
}

// GetWallet returns the majority-committed balance with its latest entries.
func (s handlers) GetWallet(ctx context.Context, r GetWalletRequestObject) (GetWalletResponseObject, error) {
	service, err := s.cfg.Wallets("")
	if err != nil {
		return nil, err
	}
	found, err := service.Wallet(ctx, callerOf(ctx).ID, r.ID)
	if err != nil {
		return nil, err
	}
	return GetWallet200JSONResponse(walletOf(found)), nil
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
