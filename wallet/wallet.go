package wallet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/idempotency"
)

// Kind of operation.
type Kind string

// The kinds of operation.
const (
	Credit  Kind = "credit"  // amount and bonus come in
	Debit   Kind = "debit"   // amount goes out
	Payment Kind = "payment" // amount goes from one wallet to another
)

// Operation is what happened to a wallet, or to two.
type Operation struct {
	ID        uuid.UUID  `bson:"_id"` // made of Client and the key: the same in every attempt
	Client    uuid.UUID  `bson:"client"`
	Kind      Kind       `bson:"kind"`
	Wallet    uuid.UUID  `bson:"wallet"` // of a payment: the payer's
	To        *uuid.UUID `bson:"to,omitempty"`
	Amount    int64      `bson:"amount"`
	Bonus     int64      `bson:"bonus"` // what the bonus service gave for a credit
	Currency  string     `bson:"currency,omitempty"`
	CreatedAt time.Time  `bson:"createdAt"`
}

// Wallet is what its owner sees of it.
type Wallet struct {
	ID        uuid.UUID `bson:"_id"`
	Owner     uuid.UUID `bson:"owner"`
	Currency  string    `bson:"currency"`
	Opening   int64     `bson:"opening"`
	Balance   int64     `bson:"balance"`
	Entries   []Entry   `bson:"entries,omitempty"` // the latest first
	CreatedAt time.Time `bson:"createdAt"`
	UpdatedAt time.Time `bson:"updatedAt"`
}

// Entry is what one operation did to one wallet.
type Entry struct {
	Operation uuid.UUID `bson:"operation"`
	Wallet    uuid.UUID `bson:"wallet"`
	Delta     int64     `bson:"delta"` // what was added: negative for what went out
	CreatedAt time.Time `bson:"createdAt"`
}

// Request and Reply are those of package idempotency.
type (
	Request = idempotency.Request
	Reply   = idempotency.Reply
)

// Encode turns an outcome that will be stored (an operation, or
// ErrInsufficientFunds with the operation it is about) into the Reply. It runs
// inside the transaction, perhaps several times, and must not do I/O.
type Encode func(Operation, error) (Reply, error)

// BonusRequest is sent to the bonus service, which answers an Operation that it knows
// with what it answered before, and applies nothing twice.
type BonusRequest struct {
	Operation uuid.UUID // the same in every request and attempt
	Request   uuid.UUID // one call of Credit
	Attempt   int       // of that request, from 1
	Wallet    uuid.UUID
	Amount    int64
}

// BonusFunc asks the bonus service what a credit gets on top, 0 or more. It has an effect
// there that no transaction takes back. An error means that there is no answer now;
// idempotency.ErrKeyReused, that the service knows the Operation for another wallet or
// amount.
type BonusFunc func(context.Context, BonusRequest) (int64, error)

// Errors that certainly moved nothing. The first is stored under the key.
var (
	ErrInsufficientFunds = errors.New("wallet: insufficient funds")

	ErrNotFound  = errors.New("wallet: not found")
	ErrForbidden = errors.New("wallet: the wallet is another client's")
	ErrInvalid   = errors.New("wallet: invalid request")
)

// InsufficientFundsError says how much is missing. It matches ErrInsufficientFunds.
type InsufficientFundsError struct {
	Wallet  uuid.UUID
	Wanted  int64
	Balance int64
}

func (e *InsufficientFundsError) Error() string {
	return fmt.Sprintf("wallet: insufficient funds: %d wanted, %d in %s", e.Wanted, e.Balance, e.Wallet)
}
func (e *InsufficientFundsError) Is(target error) bool { return target == ErrInsufficientFunds }

// UnavailableError is a bonus service that does not answer: nothing is credited
// without it. It matches locking.ErrBusy, since it means the same to a client:
// nothing was done, and the same key may be sent again.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return "wallet: no answer about the bonus: " + e.Err.Error()
}
func (e *UnavailableError) Is(target error) bool { return target == locking.ErrBusy }

// Config of a Service. Database is required, of a client made with ClientOptions.
type Config struct {
	Database *mongo.Database
	Bonus    BonusFunc // nil: there is none
	Strategy string    // default "lockid"
	Encode   Encode    // nil: status 0 and the outcome as JSON
	// QueueMax is how many may wait in this process for one wallet, for lockid and
	// inc; 0: the constant QueueMax. Negative: there is no queue, as in the other strategies.
	QueueMax int
	// Count, if not nil, is called for each event worth counting.
	Count func(kind EventKind, strategy string)
	// Failpoint is where tests interfere; nil in production.
	Failpoint func(ctx context.Context, step Step, strategy string)
}

// Strategy describes one way to run an operation.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "mongo"
	Why    string   // one sentence
}
