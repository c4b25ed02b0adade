// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/idempotency"
)

// The errors of one attempt. None of them is exported.
var (
	errHeld     = errors.New("wallet: another transaction holds the wallet")
	errKeyTaken = errors.New("wallet: the key already has an answer")
	errGuard    = errors.New("wallet: the schema refused the balance")
	errAttempts = fmt.Errorf("wallet: gave up after %d attempts", attemptsMax)
)

// verdictError is a refusal that is not stored. It is returned after a majority has the commit
// of the transaction that found the reason.
type verdictError struct{ error }

func (e *verdictError) Unwrap() error { return e.error }

func isVerdict(err error) bool {
	return errors.Is(err, idempotency.ErrKeyReused) || errors.As(err, new(*verdictError))
}

// ambiguousError reports that a commit was sent, and that its result is unknown.
type ambiguousError struct{ err error }

func (e *ambiguousError) Error() string { return "wallet: commit sent, no answer: " + e.err.Error() }
func (e *ambiguousError) Unwrap() error { return e.err }

// The server's error codes that this package distinguishes.
const (
	namespaceExists           = 48 // the collection exists
	writeConflict             = 112
	documentValidationFailure = 121 // the schema refuses the write
	noSuchTransaction         = 251
)

// stateCodes are the error codes of a server that is not a primary, is shutting down, or is not ready.
var stateCodes = []int{
	91,    // ShutdownInProgress
	189,   // PrimarySteppedDown
	10107, // NotWritablePrimary
	11600, // InterruptedAtShutdown
	11602, // InterruptedDueToReplStateChange
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary
}

// classify wraps a server's error. It always wraps with %w: by the label of the error
// WithTransaction decides whether it runs the callback again.
func classify(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case mongo.IsDuplicateKeyError(err):
		return fmt.Errorf("%w: %w", errKeyTaken, err)
	case hasCode(err, documentValidationFailure):
		return fmt.Errorf("%w: %w", errGuard, err)
	default:
		return fmt.Errorf("wallet: %s: %w", doing, err)
	}
}

// toPublic turns the last error of an operation without a reply into the caller's error.
func toPublic(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, locking.ErrBusy):
		return err
	case errors.Is(err, errKeyTaken), errors.Is(err, errAttempts),
		hasLabel(err, "TransientTransactionError"), isUnavailable(err):
		return locking.Like(locking.ErrBusy, errors.New(err.Error())) // aborted, or never begun. Its text alone: a time-out in err is not the caller's
	default:
		return err
	}
}

// countCause counts the reason for which a transaction was aborted, if err is such an error.
func (s *Service) countCause(err error) {
	switch {
	case hasCode(err, writeConflict):
		s.count(Conflict, s.method.Name)
	case hasCode(err, noSuchTransaction):
		s.count(Expired, s.method.Name)
		s.count(Transient, s.method.Name)
	case hasLabel(err, "TransientTransactionError"):
		s.count(Transient, s.method.Name)
	}
}

// isUnavailable reports whether err means that no primary answered. The driver labels these
// errors inside of a transaction, but not outside of one.
func isUnavailable(err error) bool {
	// The statement got no connection, because the dial failed or the pool was cleared: nothing
	// was sent, and the driver sets no label.
	var dial net.Error
	var pool interface{ Retryable() bool }
	if mongo.IsTimeout(err) || mongo.IsNetworkError(err) || errors.As(err, &dial) || errors.As(err, &pool) {
		return true
	}
	return slices.ContainsFunc(stateCodes, func(code int) bool { return hasCode(err, code) })
}

func hasCode(err error, code int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(code)
}

func hasLabel(err error, label string) bool {
	var labeled mongo.LabeledError
	return errors.As(err, &labeled) && labeled.HasErrorLabel(label)
}
