package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"shop/inventory"
	"shop/locking"
)

// Errors of this package. What the client should know besides is added by explain.
var (
	errMalformed    = errors.New("api: malformed request")
	errInvalid      = errors.New("api: invalid request")
	errMissingKey   = errors.New("api: no idempotency key")
	errUnauthorized = errors.New("api: unauthorized")
	errForbidden    = errors.New("api: forbidden")
	errTooLarge     = errors.New("api: body too large")
	errMediaType    = errors.New("api: unsupported media type")
	errRateLimited  = errors.New("api: rate limited")
	errFull         = errors.New("api: too many requests in flight")
)

// kind is one type of problem: what a client may build on.
type kind struct {
	typ    ProblemType
	title  string
	status int
	detail string // unless the error knows better
	wait   bool   // Retry-After
	stored bool   // kept under the key and replayed
}

// again is the advice for everything that is open or unknown.
const again = "Send the same request with the same Idempotency-Key again."

var internal = kind{
	typ: TypeInternal, title: "Internal error", status: http.StatusInternalServerError,
	detail: "Something went wrong on our side. Whether it happened is not known. " + again,
}

// table says which error is which problem; the first match counts. What may have
// happened comes before what did not, so that an error that is both promises less.
var table = []struct {
	match func(error) bool
	kind  kind
}{
	{is(locking.ErrOutcomeUnknown), kind{typ: TypeOutcomeUnknown, title: "Outcome unknown", status: 503, wait: true, detail: "It may have happened. " + again}},
	{is(inventory.ErrInProgress), kind{typ: TypeInProgress, title: "In progress", status: 409, wait: true, detail: "A request with this key is being worked on. " + again}},

	{is(inventory.ErrOutOfStock), kind{typ: TypeOutOfStock, title: "Out of stock", status: 409, stored: true}},
	{is(inventory.ErrAlreadyCancelled), kind{typ: TypeAlreadyCancelled, title: "Already cancelled", status: 409, stored: true, detail: "The order was cancelled before, and its stock was given back then."}},

	{is(inventory.ErrKeyReused), kind{typ: TypeIdempotencyKeyReused, title: "Idempotency key reused", status: 422, detail: "This key was used for another request. Take a new key for a new intent."}},
	{is(inventory.ErrNotFound), kind{typ: TypeNotFound, title: "Not found", status: 404, detail: "There is none, or it is not yours."}},
	{is(inventory.ErrInvalid), kind{typ: TypeInvalidRequest, title: "Invalid request", status: 422, detail: "The lines make no order: their currencies differ, or the total is too large."}},
	{is(errInvalid), kind{typ: TypeInvalidRequest, title: "Invalid request", status: 422}},

	{is(locking.ErrBusy), kind{typ: TypeBusy, title: "Busy", status: 503, wait: true, detail: "Nothing was done. " + again}},
	{is(errFull), kind{typ: TypeBusy, title: "Busy", status: 503, wait: true, detail: "Nothing was done. " + again}},
	{is(locking.ErrLost), kind{typ: TypeLost, title: "Lock lost", status: 503, wait: true, detail: "Nothing was done. " + again}},
	{is(locking.ErrStale), kind{typ: TypeLost, title: "Lock lost", status: 503, wait: true, detail: "Nothing was done. " + again}},

	{is(errMissingKey), kind{typ: TypeMissingIdempotencyKey, title: "Idempotency key missing", status: 400, detail: "Send a header Idempotency-Key, unique for each intent."}},
	{is(errMalformed), kind{typ: TypeMalformed, title: "Malformed request", status: 400}},
	{is(errUnauthorized), kind{typ: TypeUnauthorized, title: "Unauthorized", status: 401, detail: "Send a header Authorization: Bearer KEY with a valid API key."}},
	{is(errForbidden), kind{typ: TypeForbidden, title: "Forbidden", status: 403, detail: "This needs the key of an administrator."}},
	{is(errTooLarge), kind{typ: TypeTooLarge, title: "Too large", status: 413}},
	{is(errMediaType), kind{typ: TypeUnsupportedMediaType, title: "Unsupported media type", status: 415, detail: "Send application/json in UTF-8, not encoded."}},
	{is(errRateLimited), kind{typ: TypeRateLimited, title: "Too many requests", status: 429, wait: true, detail: "Nothing was done. " + again}},

	{code(http.StatusNotFound), kind{typ: TypeNotFound, title: "Not found", status: 404, detail: "There is no such route."}},
	{code(http.StatusMethodNotAllowed), kind{typ: TypeMethodNotAllowed, title: "Method not allowed", status: 405, detail: "The header Allow lists the methods of this route."}},
	{code(http.StatusBadRequest), kind{typ: TypeMalformed, title: "Malformed request", status: 400, detail: "A header is there twice, or a whole number is not written in digits only."}},
	{code(http.StatusRequestEntityTooLarge), kind{typ: TypeTooLarge, title: "Too large", status: 413}},
	{code(http.StatusUnsupportedMediaType), kind{typ: TypeUnsupportedMediaType, title: "Unsupported media type", status: 415}},

	{is(context.DeadlineExceeded), kind{typ: TypeTimeout, title: "Timeout", status: 504, detail: "It may have happened. " + again}},
	{is(context.Canceled), kind{typ: TypeTimeout, title: "Timeout", status: 504, detail: "The request was ended. It may have happened. " + again}},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// code matches what Echo itself says. With errors.As, since an echo.HTTPError
// may come wrapped; Echo's own handler asserts, and would make that a 500.
func code(status int) func(error) bool {
	return func(err error) bool {
		he, ok := errors.AsType[*echo.HTTPError](err)
		return ok && he.Code == status
	}
}

// kindOf walks the table. Nothing found: internal.
func kindOf(err error) kind {
	for _, row := range table {
		if row.match(err) {
			return row.kind
		}
	}
	return internal
}
