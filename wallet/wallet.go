// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/idempotency"
)

// Kind is the kind of an operation.
type Kind string

// The kinds of operation.
const (
	Credit Kind = "credit"  // amount and bonus come in
	Debit  Kind = "debit"   // amount goes out
	Pay    Kind = "payment" // amount goes from one wallet to another
)

// Operation is a change of one wallet, or a payment between two.
type Operation struct {
	ID        uuid.UUID  `bson:"_id"` // made of Client and the key: the same in every attempt
	Client    uuid.UUID  `bson:"client"`
	Kind      Kind       `bson:"kind"`
	Wallet    uuid.UUID  `bson:"wallet"` // the payer's, if it is a payment
	To        *uuid.UUID `bson:"to,omitempty"`
	Amount    int64      `bson:"amount"`
	Bonus     int64      `bson:"bonus"` // what the bonus service gave for a credit
	Currency  string     `bson:"currency,omitempty"`
	CreatedAt time.Time  `bson:"createdAt"`
}

// Wallet is a wallet as its owner sees it.
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

// Encode encodes an outcome as the Reply that is stored. The outcome is an operation, or
// ErrInsufficientFunds with the operation that it is about. Encode runs inside the
// transaction, perhaps several times, and must not do I/O.
type Encode func(Operation, error) (Reply, error)

// BonusRequest is a call of the bonus service. If the service knows the Operation, it repeats
// its answer, and applies nothing.
type BonusRequest struct {
	Operation uuid.UUID // the same in every request and attempt
	Request   uuid.UUID // one call of Credit
	Attempt   int       // of that request, from 1
	Wallet    uuid.UUID
	Amount    int64
}

// BonusFunc calls the bonus service and returns the bonus of a credit, 0 or more. The call has
// an effect there that no transaction rolls back. An error means that there is no answer now;
// idempotency.ErrKeyReused means that the service knows the Operation for another wallet or amount.
type BonusFunc func(context.Context, BonusRequest) (int64, error)

// Errors of requests that moved no money. The first is stored under the key.
var (
	ErrInsufficientFunds = errors.New("wallet: insufficient funds")

	ErrNotFound  = errors.New("wallet: not found")
	ErrForbidden = errors.New("wallet: the wallet belongs to another client")
	ErrInvalid   = errors.New("wallet: invalid request")
)

// InsufficientFundsError reports the amount wanted and the balance. It matches ErrInsufficientFunds.
type InsufficientFundsError struct {
	Wallet  uuid.UUID
	Wanted  int64
	Balance int64
}

func (e *InsufficientFundsError) Error() string {
	return fmt.Sprintf("wallet: insufficient funds: %d wanted, %d in %s", e.Wanted, e.Balance, e.Wallet)
}
func (e *InsufficientFundsError) Is(target error) bool { return target == ErrInsufficientFunds }

// UnavailableError reports that the bonus service gave no valid answer, without which nothing
// is credited. It matches locking.ErrBusy, because both mean the same to a client: nothing
// was credited, and the same key can be sent again.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return "wallet: no valid answer from the bonus service: " + e.Err.Error()
}
func (e *UnavailableError) Is(target error) bool { return target == locking.ErrBusy }

// Config configures a Service. Database is required. Its client is made with ClientOptions.
type Config struct {
	Database *mongo.Database
	Bonus    BonusFunc    // nil: there is no bonus service, and every bonus is 0
	Strategy string       // default "lockid"
	Hot      []uuid.UUID  // wallets whose credits and debits are "combined", unless With has named a strategy
	Encode   Encode       // nil: status 0 and the outcome as JSON
	Log      *slog.Logger // of panics in a batch of combined; nil: slog.Default()
	// QueueMax is how many requests may wait in this process for one wallet, under lockid,
	// combined and inc; 0: the constant QueueMax; negative: there is no queue, as under the other strategies.
	QueueMax int
	// Count, if not nil, is called for each event.
	Count func(kind EventKind, strategy string)
	// Failpoint is called at each step, for tests; nil in production.
	Failpoint func(ctx context.Context, step Step, strategy string)
}

// Strategy describes one way to run an operation.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "mongo"
	Why    string   // one sentence
}
