// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/transfer"
	"shop/wallet"
)

// Errors of this package. withDetail adds the text for the client.
var (
	errMalformed    = errors.New("api: malformed request")
	errInvalid      = errors.New("api: invalid request")
	errMissingKey   = errors.New("api: no idempotency key")
	errUnauthorized = errors.New("api: unauthorized")
	errForbidden    = errors.New("api: forbidden")
	errTooLarge     = errors.New("api: body too large")
	errMediaType    = errors.New("api: unsupported media type")
	errRateLimited  = errors.New("api: rate limited")
	errShare        = errors.New("api: too many requests of one client at once")
	errStoredKeys   = errors.New("api: too many stored idempotency keys of one client")
	errUnknownKeys  = errors.New("api: too many unknown keys from one address")
	errSlowBody     = errors.New("api: the body did not arrive in time")
	errFull         = errors.New("api: too many requests in flight")
	errTooLong      = errors.New("api: the audit did not end in time")
	errAway         = errors.New("api: the database is unavailable, nothing was done") // joined with its cause
)

// kind is one type of problem: what clients may rely on.
type kind struct {
	typ    ProblemType
	title  string
	status int
	detail string // unless the error has its own
	wait   int    // the value of Retry-After, in seconds; 0: do not send it
	stored bool   // stored under the key and replayed
}

// Details of the problems. After "nothing was done" a client may stop retrying; after "may
// have taken effect" it must not.
const (
	again       = "Retry the same request with the same Idempotency-Key."
	nothingDone = "Nothing was done. " + again
	tooMany     = "This client has too many requests in flight. " + nothingDone
	unknownKeys = "Too many unknown keys came from this address. " + nothingDone
	tooManyKeys = "This client has too many stored Idempotency-Keys: each is stored for 24 hours. " + nothingDone
	slowBody    = "The body did not arrive within the time limit of a request. " + nothingDone
	gone        = "The client closed its side of the connection before the answer, or the server was ending. The request may have taken effect. " + again
	mayHave     = "The request may have taken effect. " + again
	noKey       = "Send the header Idempotency-Key with a value that is unique for each intent."
	keyReused   = "This key was used for another request. Use a new key for a new intent."
	inProgress  = "A request with this key is in progress. " + again
	noFence     = "The lock service was replaced, and an operator must confirm this first. Nothing was done. " + again
	timeIsOver  = "This hold has expired, and its money was released."
	wasSettled  = "This hold was already posted or voided; the transfer shows which."
	noTransfer  = "Both accounts must have the currency of the transfer, and the posted amount must not exceed the held one."
	notYourOwn  = "Only its owner may take money from an account."
	notYourCash = "Only its owner may credit or debit a wallet, or pay from it."
	noOperation = "Both wallets must have the same currency, and no balance may exceed its limit."
	gaveBack    = "The order was already cancelled, and its stock was returned then."
	stockFull   = "The stock of a product cannot count the units that would be returned."
	noOrder     = "The lines are no valid order: their currencies differ, or the total is too large."
	notYours    = "It does not exist, or it is not yours." // one text for both: a difference would disclose what other clients have
	noRoute     = "There is no such route."
	wrongMethod = "The header Allow lists the methods of this route."
	unreadable  = "A header occurs twice, or an integer has an exponent or too many digits."
	sendJSON    = "Send application/json in UTF-8, without a content encoding."
	sendBearer  = "Send the header Authorization: Bearer KEY with a valid API key."
	adminsOnly  = "This route requires the key of an administrator."
	tooLong     = "The audit did not end within the time limit of a request, %v. If every store answers, there is too much for it: run shop audit."
	ourFault    = "An internal error occurred. Whether the request took effect is unknown. " + again
	noEffect    = "An internal error occurred. Nothing was done. " + again
)

// internal is the problem for every error that is not in the table, which is a bug. Its
// outcome is unknown, like that of a timeout.
var internal = kind{typ: TypeInternal, title: "Internal error", status: 500, detail: ourFault}

// table maps errors to problems; the first match counts. Unknown outcomes come before
// outcomes without an effect, so that an error that matches both promises less.
var table = []struct {
	match func(error) bool
	kind  kind
}{
	// The request may have taken effect.
	{is(locking.ErrOutcomeUnknown), kind{typ: TypeOutcomeUnknown, title: "Outcome unknown", status: 503, wait: 1, detail: mayHave}},
	{is(idempotency.ErrInProgress), kind{typ: TypeInProgress, title: "In progress", status: 409, wait: 1, detail: inProgress}},

	// It did not, and never will under this key: the only errors that are stored.
	{is(inventory.ErrOutOfStock), kind{typ: TypeOutOfStock, title: "Out of stock", status: 409, stored: true}},
	{is(inventory.ErrPurchaseLimit), kind{typ: TypePurchaseLimit, title: "Purchase limit", status: 409, stored: true}},
	{is(inventory.ErrPriceChanged), kind{typ: TypePriceChanged, title: "Price changed", status: 409, stored: true}},
	{is(inventory.ErrStockLimit), kind{typ: TypeStockLimit, title: "Stock limit", status: 409, stored: true, detail: stockFull}},
	{is(inventory.ErrAlreadyCancelled), kind{typ: TypeAlreadyCancelled, title: "Already cancelled", status: 409, stored: true, detail: gaveBack}},
	{is(transfer.ErrInsufficientFunds), kind{typ: TypeInsufficientFunds, title: "Insufficient funds", status: 409, stored: true}},
	{is(wallet.ErrInsufficientFunds), kind{typ: TypeInsufficientFunds, title: "Insufficient funds", status: 409, stored: true}},
	{is(transfer.ErrExpired), kind{typ: TypeExpired, title: "Expired", status: 409, stored: true, detail: timeIsOver}},
	{is(transfer.ErrSettled), kind{typ: TypeAlreadySettled, title: "Already settled", status: 409, stored: true, detail: wasSettled}},

	// It did not, and cannot: the client must change the request.
	{is(idempotency.ErrKeyReused), kind{typ: TypeIdempotencyKeyReused, title: "Idempotency key reused", status: 422, detail: keyReused}},
	{is(inventory.ErrNotFound), kind{typ: TypeNotFound, title: "Not found", status: 404, detail: notYours}},
	{is(inventory.ErrInvalid), kind{typ: TypeInvalidRequest, title: "Invalid request", status: 422, detail: noOrder}},
	{is(transfer.ErrNotFound), kind{typ: TypeNotFound, title: "Not found", status: 404, detail: notYours}},
	{is(transfer.ErrForbidden), kind{typ: TypeForbidden, title: "Forbidden", status: 403, detail: notYourOwn}},
	{is(transfer.ErrInvalid), kind{typ: TypeInvalidRequest, title: "Invalid request", status: 422, detail: noTransfer}},
	{is(wallet.ErrNotFound), kind{typ: TypeNotFound, title: "Not found", status: 404, detail: notYours}},
	{is(wallet.ErrForbidden), kind{typ: TypeForbidden, title: "Forbidden", status: 403, detail: notYourCash}},
	{is(wallet.ErrInvalid), kind{typ: TypeInvalidRequest, title: "Invalid request", status: 422, detail: noOperation}},
	{is(errInvalid), kind{typ: TypeInvalidRequest, title: "Invalid request", status: 422}},
	{is(errMissingKey), kind{typ: TypeMissingIdempotencyKey, title: "Idempotency key missing", status: 400, detail: noKey}},
	{is(errMalformed), kind{typ: TypeMalformed, title: "Malformed request", status: 400}},
	{is(errUnauthorized), kind{typ: TypeUnauthorized, title: "Unauthorized", status: 401, detail: sendBearer}},
	{is(errForbidden), kind{typ: TypeForbidden, title: "Forbidden", status: 403, detail: adminsOnly}},
	{is(errTooLarge), kind{typ: TypeTooLarge, title: "Too large", status: 413}},
	{is(errMediaType), kind{typ: TypeUnsupportedMediaType, title: "Unsupported media type", status: 415, detail: sendJSON}},

	// This attempt did nothing; a retry may succeed.
	{is(transfer.ErrEpoch), kind{typ: TypeFenceEpoch, title: "Fence epoch unknown", status: 503, wait: 1, detail: noFence}},
	{is(locking.ErrBusy), kind{typ: TypeBusy, title: "Busy", status: 503, wait: 1, detail: nothingDone}},
	{is(errFull), kind{typ: TypeBusy, title: "Busy", status: 503, wait: 1, detail: nothingDone}},
	{is(locking.ErrLost), kind{typ: TypeLost, title: "Lock lost", status: 503, wait: 1, detail: nothingDone}},
	{is(locking.ErrStale), kind{typ: TypeStale, title: "Overtaken", status: 503, wait: 1, detail: nothingDone}},
	{is(errTooLong), kind{typ: TypeBusy, title: "Busy", status: 503, wait: 30}},
	{is(errAway), kind{typ: TypeBusy, title: "Busy", status: 503, wait: 1, detail: nothingDone}},
	{is(errSlowBody), kind{typ: TypeRequestTimeout, title: "Request timeout", status: 408, detail: slowBody}},
	{is(errShare), kind{typ: TypeRateLimited, title: "Too many requests", status: 429, wait: 1, detail: tooMany}},
	{is(errStoredKeys), kind{typ: TypeRateLimited, title: "Too many requests", status: 429, wait: 30, detail: tooManyKeys}},
	{is(errUnknownKeys), kind{typ: TypeRateLimited, title: "Too many requests", status: 429, wait: 1, detail: unknownKeys}},
	{is(errRateLimited), kind{typ: TypeRateLimited, title: "Too many requests", status: 429, wait: 1, detail: nothingDone}},

	// Errors of Echo and the generated code.
	{code(http.StatusNotFound), kind{typ: TypeNotFound, title: "Not found", status: 404, detail: noRoute}},
	{code(http.StatusMethodNotAllowed), kind{typ: TypeMethodNotAllowed, title: "Method not allowed", status: 405, detail: wrongMethod}},
	{code(http.StatusBadRequest), kind{typ: TypeMalformed, title: "Malformed request", status: 400, detail: unreadable}},
	{code(http.StatusRequestEntityTooLarge), kind{typ: TypeTooLarge, title: "Too large", status: 413}},
	{code(http.StatusUnsupportedMediaType), kind{typ: TypeUnsupportedMediaType, title: "Unsupported media type", status: 415, detail: sendJSON}},

	// The time limit of the request passed, and no COMMIT was sent.
	{timedOutUndone, kind{typ: TypeBusy, title: "Busy", status: 503, wait: 1, detail: nothingDone}},

	// The request ended before its work: unknown, because a COMMIT may be on its way.
	// Last, because an error of a busy or lost lock often matches these too.
	{is(context.DeadlineExceeded), kind{typ: TypeTimeout, title: "Timeout", status: 504, detail: mayHave}},
	{is(context.Canceled), kind{typ: TypeOutcomeUnknown, title: "Outcome unknown", status: 503, wait: 1, detail: mayHave}},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func timedOutUndone(err error) bool {
	return errors.Is(err, idempotency.ErrNotDone) && errors.Is(err, context.DeadlineExceeded)
}

// code matches an error of Echo by status, even if it is wrapped.
func code(status int) func(error) bool {
	return func(err error) bool {
		he, ok := errors.AsType[*echo.HTTPError](err)
		return ok && he.Code == status
	}
}

// kindOf returns the first match of the table, or internal.
func kindOf(err error) kind {
	for _, row := range table {
		if row.match(err) {
			return row.kind
		}
	}
	return internal
}
