// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/labstack/echo/v4"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/transfer"
	"shop/wallet"
)

// rows are the error table from a client's point of view.
var wantProblems = []struct {
	err    error
	typ    ProblemType
	status int
	wait   bool
}{
	{locking.ErrOutcomeUnknown, TypeOutcomeUnknown, 503, true},
	{idempotency.ErrInProgress, TypeInProgress, 409, true},
	{&transfer.InsufficientFundsError{Wanted: 2, Available: 1}, TypeInsufficientFunds, 409, false},
	{transfer.ErrExpired, TypeExpired, 409, false},
	{transfer.ErrSettled, TypeAlreadySettled, 409, false},
	{idempotency.ErrKeyReused, TypeIdempotencyKeyReused, 422, false},
	{transfer.ErrNotFound, TypeNotFound, 404, false},
	{transfer.ErrForbidden, TypeForbidden, 403, false},
	{transfer.ErrInvalid, TypeInvalidRequest, 422, false},
	{&transfer.EpochError{Epoch: "a", Seen: "b"}, TypeFenceEpoch, 503, true},
	{&transfer.StaleError{Fence: 1, Seen: 2}, TypeStale, 503, true},
	{&transfer.UnavailableError{Err: errors.New("no answer")}, TypeBusy, 503, true},
	{&wallet.InsufficientFundsError{Wanted: 2, Balance: 1}, TypeInsufficientFunds, 409, false},
	{wallet.ErrNotFound, TypeNotFound, 404, false},
	{wallet.ErrForbidden, TypeForbidden, 403, false},
	{wallet.ErrInvalid, TypeInvalidRequest, 422, false},
	{&wallet.UnavailableError{Err: errors.New("no answer")}, TypeBusy, 503, true},
	{&inventory.OutOfStockError{SKU: "a", Wanted: 2, Left: 1}, TypeOutOfStock, 409, false},
	{&inventory.PurchaseLimitError{SKU: "a", Wanted: 2, Bought: 3, Max: 4}, TypePurchaseLimit, 409, false},
	{&inventory.PriceChangedError{SKU: "a", Seen: 1, Price: 2}, TypePriceChanged, 409, false},
	{inventory.ErrStockLimit, TypeStockLimit, 409, false},
	{inventory.ErrAlreadyCancelled, TypeAlreadyCancelled, 409, false},
	{inventory.ErrNotFound, TypeNotFound, 404, false},
	{&inventory.UnknownSKUError{SKU: "a"}, TypeNotFound, 404, false},
	{inventory.ErrInvalid, TypeInvalidRequest, 422, false},
	{locking.ErrBusy, TypeBusy, 503, true},
	{locking.ErrLost, TypeLost, 503, true},
	{locking.ErrStale, TypeStale, 503, true},
	{errFull, TypeBusy, 503, true},
	{errInvalid, TypeInvalidRequest, 422, false},
	{errMissingKey, TypeMissingIdempotencyKey, 400, false},
	{errMalformed, TypeMalformed, 400, false},
	{errUnauthorized, TypeUnauthorized, 401, false},
	{errForbidden, TypeForbidden, 403, false},
	{errTooLarge, TypeTooLarge, 413, false},
	{errMediaType, TypeUnsupportedMediaType, 415, false},
	{errRateLimited, TypeRateLimited, 429, true},
	{errShare, TypeRateLimited, 429, true},
	{errStoredKeys, TypeRateLimited, 429, true},
	{errUnknownKeys, TypeRateLimited, 429, true},
	{errSlowBody, TypeRequestTimeout, 408, false},
	{errAway, TypeBusy, 503, true},
	{echo.ErrNotFound, TypeNotFound, 404, false},
	{echo.ErrMethodNotAllowed, TypeMethodNotAllowed, 405, false},
	{echo.ErrBadRequest, TypeMalformed, 400, false},
	{echo.ErrStatusRequestEntityTooLarge, TypeTooLarge, 413, false},
	{echo.ErrUnsupportedMediaType, TypeUnsupportedMediaType, 415, false},
	{locking.Like(idempotency.ErrNotDone, context.DeadlineExceeded), TypeBusy, 503, true},
	{context.DeadlineExceeded, TypeTimeout, 504, false},
	{context.Canceled, TypeOutcomeUnknown, 503, true},
	{errors.New("anything else"), TypeInternal, 500, false},
	{&pgconn.PgError{Code: "XX000"}, TypeInternal, 500, false},
}

func TestTable_FindsAnErrorHoweverItIsWrapped(t *testing.T) {
	for _, want := range wantProblems {
		for _, err := range []error{
			want.err,
			fmt.Errorf("while buying: %w", want.err),
			errors.Join(errors.New("something besides"), want.err),
		} {
			k := kindOf(err)
			if k.typ != want.typ || k.status != want.status || (k.wait > 0) != want.wait {
				t.Errorf("%v: %s %d wait %d; want %s %d %t", err, k.typ, k.status, k.wait, want.typ, want.status, want.wait)
			}
		}
	}
}

func TestTable_KnowsEveryTypeOfTheSpec(t *testing.T) {
	spec, err := GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, want := range wantProblems {
		have[string(want.typ)] = true
	}
	for _, typ := range spec.Components.Schemas["Problem"].Value.Properties["type"].Value.Enum {
		if !have[typ.(string)] {
			t.Errorf("%s is in openapi.yaml, and no error leads to it", typ)
		}
		delete(have, typ.(string))
	}
	for typ := range have {
		t.Errorf("%s is not in openapi.yaml", typ)
	}
}

// An error that matches two rows gets the weaker promise: a client stops retrying after "rejected".
func TestTable_WhatMayHaveHappenedComesFirst(t *testing.T) {
	for _, certain := range []error{locking.ErrBusy, locking.ErrLost, inventory.ErrOutOfStock, transfer.ErrInsufficientFunds, wallet.ErrInsufficientFunds, idempotency.ErrKeyReused, transfer.ErrEpoch, inventory.ErrNotFound, errInvalid} {
		for _, err := range []error{
			errors.Join(certain, locking.ErrOutcomeUnknown), errors.Join(idempotency.ErrInProgress, certain), errors.Join(certain, idempotency.ErrInProgress),
		} {
			if typ := kindOf(err).typ; typ != TypeOutcomeUnknown && typ != TypeInProgress {
				t.Errorf("%v is told as %s", err, typ)
			}
		}
	}
}

func TestProblem_NeverContainsTheTextOfAnError(t *testing.T) {
	const secret = "host=10.0.0.7 password=hunter2"
	for _, want := range wantProblems {
		err := fmt.Errorf("%s: %w", secret, want.err)
		if p := problemOf(err); strings.Contains(fmt.Sprint(p), "hunter2") {
			t.Errorf("%s leaks: %v", want.typ, p)
		}
	}
}

func TestEncode_StoresOnlyFinalOutcomes(t *testing.T) {
	final := []ProblemType{TypeOutOfStock, TypePurchaseLimit, TypePriceChanged, TypeStockLimit, TypeAlreadyCancelled, TypeInsufficientFunds, TypeExpired, TypeAlreadySettled}
	for _, want := range wantProblems {
		reply, err := Encode(inventory.Order{}, want.err)
		money, moneyErr := EncodeTransfer(transfer.Transfer{}, want.err)
		if !reflect.DeepEqual(money, transfer.Reply(reply)) || moneyErr != err {
			t.Errorf("%v: of a transfer %+v, %v", want.err, money, moneyErr)
		}
		cash, cashErr := EncodeWallet(wallet.Operation{}, want.err)
		if !reflect.DeepEqual(cash, wallet.Reply(reply)) || cashErr != err {
			t.Errorf("%v: of a wallet %+v, %v", want.err, cash, cashErr)
		}
		final := slices.Contains(final, want.typ)
		switch {
		case final && (err != nil || reply.Status != want.status || !strings.Contains(string(reply.Body), string(want.typ))):
			t.Errorf("%v: %d %s, %v", want.err, reply.Status, reply.Body, err)
		case !final && (!errors.Is(err, want.err) || reply.Status != 0 || reply.Body != nil):
			t.Errorf("%v would be kept: %d %s, %v", want.err, reply.Status, reply.Body, err)
		}
	}
}
