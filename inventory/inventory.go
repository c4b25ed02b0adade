package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Product is something that is sold. Price is in minor units of Currency (ISO 4217).
type Product struct {
	SKU      string
	Name     string
	Price    int64
	Currency string
	Stock    int64
}

// Line is what a client asks for: an amount of one product.
type Line struct {
	SKU      string
	Quantity int64
}

// OrderLine is a Line with the price at which it was sold.
type OrderLine struct {
	SKU       string
	Quantity  int64
	UnitPrice int64
}

// Status of an order.
type Status string

// An order is confirmed from its first moment, and may be cancelled once.
const (
	Confirmed Status = "confirmed"
	Cancelled Status = "cancelled"
)

// Order is a purchase that happened.
type Order struct {
	ID          uuid.UUID
	Client      uuid.UUID
	Status      Status
	Lines       []OrderLine
	Total       int64
	Currency    string
	CreatedAt   time.Time
	CancelledAt *time.Time
}

// Request and Reply are those of every lesson.
type (
	Request = idempotency.Request
	Reply   = idempotency.Reply
)

// Encode turns an outcome that will be stored (an order, or ErrOutOfStock,
// ErrAlreadyCancelled …) into the Reply. It runs inside the transaction, and must not do I/O.
type Encode func(Order, error) (Reply, error)

// Errors that certainly changed nothing.
var (
	ErrOutOfStock       = errors.New("inventory: out of stock")            // stored under the key
	ErrAlreadyCancelled = errors.New("inventory: order already cancelled") // stored under the key
	ErrNotFound         = errors.New("inventory: not found")
	ErrInvalid          = errors.New("inventory: invalid request")
)

// UnknownSKUError says which product does not exist. It matches ErrNotFound.
type UnknownSKUError struct{ SKU string }

func (e *UnknownSKUError) Error() string        { return fmt.Sprintf("inventory: unknown sku %q", e.SKU) }
func (e *UnknownSKUError) Is(target error) bool { return target == ErrNotFound }

// OutOfStockError says which product is short. It matches ErrOutOfStock.
type OutOfStockError struct {
	SKU    string
	Wanted int64
	Left   int64
}

func (e *OutOfStockError) Error() string {
	return fmt.Sprintf("inventory: out of stock: %d of %q wanted, %d left", e.Wanted, e.SKU, e.Left)
}
func (e *OutOfStockError) Is(target error) bool { return target == ErrOutOfStock }

// Step is a point of a purchase at which a test may stop, slow or kill the process.
type Step = pgtx.Step

// The steps, in order.
const (
	AfterAcquire = pgtx.AfterAcquire // the Redis lock is held, where there is one; nothing was read
	AfterGuard   = pgtx.AfterGuard   // the stock was read, under its lock where there is one
	BeforeCommit = pgtx.BeforeCommit
	AfterCommit  = pgtx.AfterCommit
)

// EventKind is something worth counting.
type EventKind = pgtx.Event

// The kinds of event.
const (
	GuardTripped           = pgtx.GuardTripped // CHECK (stock >= 0) refused a write: the last guard
	Retried                = pgtx.Retried      // a transaction ran again: 40001, 40P01, version conflict, advisory lock not free …
	Ambiguous              = pgtx.Ambiguous    // a COMMIT was sent and not answered
	Resolved               = pgtx.Resolved     // … and was decided by running again with the same key
	Degraded     EventKind = "degraded"        // a purchase went on with the row lock alone, Redis being unreachable
	Bypassed     EventKind = "bypassed"        // … or its lock having been busy for all of MaxWait
	Shed         EventKind = "shed"            // … or was refused, as many as may go on so being at work
)

// Config of a Service. Pool is required; Locks only for strategies that use Redis.
type Config struct {
	Pool      *pgxpool.Pool // made with pgtx.PoolConfig
	Locks     locking.Store
	Lock      locking.Options // zero fields: what suits locks that are held for milliseconds
	Strategy  string          // default "redis+row"
	Encode    Encode          // nil: status 0 and the outcome as JSON
	Log       *slog.Logger
	Count     func(kind EventKind, strategy string)                 // nil: nothing is counted
	Failpoint func(ctx context.Context, step Step, strategy string) // nil in production
}

// Strategy describes one way to take stock.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "postgres", "redis"
	Why    string   // one sentence
}
