// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/breaker"
	"shop/locking/combine"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Move is a transfer as a client requests it. Amount is in minor units of Currency (ISO 4217).
type Move struct {
	From     uuid.UUID
	To       uuid.UUID
	Amount   int64
	Currency string
}

// State is the state of a transfer. It changes at most once, from Reserved to one of the others.
type State string

// An immediate transfer is created as Posted, a hold as Reserved.
const (
	Reserved State = "reserved" // the money is held, and still in the payer's balance
	Posted   State = "posted"   // the money moved, all of it or a part
	Voided   State = "voided"   // the client voided the hold: the money is available again
	Expired  State = "expired"  // the hold was not posted in time: the money is available again
)

// Transfer is a stored transfer: money that moved, or that is held.
type Transfer struct {
	ID        uuid.UUID
	Client    uuid.UUID // the client that requested it: the owner of From
	From      uuid.UUID
	To        uuid.UUID
	Amount    int64 // requested, or held
	Settled   int64 // what moved; less than Amount if a hold was posted in part
	Currency  string
	State     State
	CreatedAt time.Time
	ExpiresAt *time.Time // holds only
	EndedAt   *time.Time // nil while reserved
}

// Request and Reply are those of package idempotency.
type (
	Request = idempotency.Request
	Reply   = idempotency.Reply
)

// Encode encodes an outcome as the Reply that is stored. The outcome is a transfer, or
// ErrInsufficientFunds, ErrExpired or ErrSettled with the transfer that it is about.
// Encode runs inside the transaction, and must not do I/O.
type Encode func(Transfer, error) (Reply, error)

// Errors of requests that moved no money. The first three are stored under the key.
var (
	ErrInsufficientFunds = errors.New("transfer: insufficient funds")
	ErrExpired           = errors.New("transfer: the hold has expired")
	ErrSettled           = errors.New("transfer: the hold has already been settled")

	ErrNotFound  = errors.New("transfer: not found")
	ErrForbidden = errors.New("transfer: the account belongs to another client")
	ErrInvalid   = errors.New("transfer: invalid request")
	ErrEpoch     = errors.New("transfer: the account was fenced in another epoch")
)

// UnavailableError reports that the lock service granted no usable lock, without which no
// money moves. It matches locking.ErrBusy, because both mean the same to a client: nothing
// was done, and the request can be sent again.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return "transfer: no usable lock from the lock service: " + e.Err.Error()
}
func (e *UnavailableError) Is(target error) bool { return target == locking.ErrBusy }

// InsufficientFundsError reports the amounts wanted and available. It matches ErrInsufficientFunds.
type InsufficientFundsError struct {
	Account   uuid.UUID
	Wanted    int64
	Available int64
}

func (e *InsufficientFundsError) Error() string {
	return fmt.Sprintf("transfer: insufficient funds: %d wanted, %d available on %s", e.Wanted, e.Available, e.Account)
}
func (e *InsufficientFundsError) Is(target error) bool { return target == ErrInsufficientFunds }

// Service moves money. It is safe for concurrent use; several processes may share one database.
type Service struct {
	cfg      Config // with New's defaults
	db       *pgtx.DB
	method   runFunc                               // the strategy's
	batched  runFunc                               // of transfers that wait for a batch
	owners   *combine.Owners[uuid.UUID, uuid.UUID] // of accounts
	batch    bool                                  // all do, since the strategy is combined
	breaker  *breaker.Breaker                      // in front of the lock store
	combiner *combine.Combiner[*operation, Reply]  // nil without a lock store and an epoch
}

// Step is a point of a transfer at which a test may stop, slow or kill the process.
type Step = pgtx.Step

// The steps, in order (b2 … are the steps of doc.go). naive passes AfterBegin after AfterGuard, since
// it begins its transaction after the read. etcd-fence-only and etcd-unfenced pass AfterBegin twice.
const (
	BeforeAcquire Step = "before-acquire"  // b2: checked; nothing is held
	AfterAcquire       = pgtx.AfterAcquire // b5: both locks are held, if the strategy has locks; nothing was read
	AfterBegin         = pgtx.AfterBegin   // b6: in a transaction, after the last check of ctx before the guard
	AfterGuard         = pgtx.AfterGuard   // b7: both accounts were read, and locked if the strategy locks them
	AfterKey           = pgtx.AfterKey     // b8: the idempotency key is inserted, after the rows were locked
	BeforeCommit       = pgtx.BeforeCommit // b9: everything is written
	AfterCommit        = pgtx.AfterCommit  // b10: everything is committed
	AfterRelease  Step = "after-release"   // b11: the locks are released, the reply is not sent yet
)

// Steps returns all steps, in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterKey, BeforeCommit, AfterCommit, AfterRelease}
}

// EventKind is a kind of event that Config.Count is called for.
type EventKind = pgtx.Event

// The kinds of event.
const (
	FenceRefused EventKind = "fence_refused"   // the guard refused an old fence: ErrStale
	GuardTripped           = pgtx.GuardTripped // CHECK (balance >= held) refused a write: the last guard
	Retried                = pgtx.Retried      // a whole transaction ran again (40001, 40P01, connection lost …)
	Ambiguous              = pgtx.Ambiguous    // a COMMIT got no answer
	Resolved               = pgtx.Resolved     // the outcome of such a COMMIT was found out with the same key
	Unavailable  EventKind = "unavailable"     // a request was refused, because the lock service did not answer
	Swept        EventKind = "swept"           // a hold was ended as expired, and its money is available
)
