package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/breaker"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Move is what a client asks for. Amount is in minor units of Currency (ISO 4217).
type Move struct {
	From     uuid.UUID
	To       uuid.UUID
	Amount   int64
	Currency string
}

// State of a transfer. It changes once, from Reserved to one of the others.
type State string

// A transfer at once is Posted from its first moment; a hold begins as Reserved.
const (
	Reserved State = "reserved" // the money is held, and still the payer's
	Posted   State = "posted"   // it moved, all of it or a part
	Voided   State = "voided"   // it is free again, because its client voided it
	Expired  State = "expired"  // … because it was not posted in time
)

// Transfer is money that moved, or is held to move.
type Transfer struct {
	ID        uuid.UUID
	Client    uuid.UUID // that asked for it: the owner of From
	From      uuid.UUID
	To        uuid.UUID
	Amount    int64 // asked for, or held
	Settled   int64 // what moved; less than Amount when a hold was posted in part
	Currency  string
	State     State
	CreatedAt time.Time
	ExpiresAt *time.Time // holds only
	EndedAt   *time.Time // nil while reserved
}

// Request and Reply are those of every lesson.
type (
	Request = idempotency.Request
	Reply   = idempotency.Reply
)

// Encode turns an outcome that will be stored (a transfer, or
// ErrInsufficientFunds, ErrExpired, ErrSettled with the transfer it is about)
// into the Reply. It runs inside the transaction, and must not do I/O.
type Encode func(Transfer, error) (Reply, error)

// Errors that certainly moved nothing. The first three are stored under the key.
var (
	ErrInsufficientFunds = errors.New("transfer: insufficient funds")
	ErrExpired           = errors.New("transfer: the hold has expired")
	ErrSettled           = errors.New("transfer: the hold was settled before")

	ErrNotFound  = errors.New("transfer: not found")
	ErrForbidden = errors.New("transfer: the account is another client's")
	ErrInvalid   = errors.New("transfer: invalid request")
	ErrEpoch     = errors.New("transfer: the account was fenced in another epoch")
)

// UnavailableError is a lock service that does not answer: no money moves
// without it. It matches locking.ErrBusy, which means the same to a client:
// nothing was done, send the request again.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return "transfer: the lock service grants nothing: " + e.Err.Error()
}
func (e *UnavailableError) Is(target error) bool { return target == locking.ErrBusy }

// InsufficientFundsError says how much is missing. It matches ErrInsufficientFunds.
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
	cfg     Config // as New has completed it
	db      *pgtx.DB
	method  runFunc          // the strategy's
	breaker *breaker.Breaker // in front of cfg.Locks
}
