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

// Request names one intent of one client. The same Client and Key is the same
// intent; with another Fingerprint it is ErrKeyReused.
type Request struct {
	Client      uuid.UUID
	Key         string   // 1 to 255 bytes of printable ASCII
	Fingerprint [32]byte // of what is asked
}

// Reply is what the client is told: committed in the transaction of the effect
// and returned byte for byte to each repetition while the key is kept. Status and Body mean nothing to this package.
type Reply struct {
	Status   int
	Body     []byte
	Replayed bool
}

// Encode turns an outcome that will be stored (an order, or ErrOutOfStock,
// ErrAlreadyCancelled …) into the Reply. It runs inside the transaction, and must not do I/O.
type Encode func(Order, error) (Reply, error)

// Errors that certainly changed nothing.
var (
	ErrOutOfStock       = errors.New("inventory: out of stock")            // stored under the key
	ErrAlreadyCancelled = errors.New("inventory: order already cancelled") // stored under the key
	ErrNotFound         = errors.New("inventory: not found")
	ErrInvalid          = errors.New("inventory: invalid request")
	ErrKeyReused        = errors.New("inventory: idempotency key was used for another request")
	ErrInProgress       = errors.New("inventory: a request with this key is in progress") // unknown to the client
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
type Step string

// The steps, in order.
const (
	AfterAcquire Step = "after-acquire" // the lock is held (where there is one), nothing was read
	AfterGuard   Step = "after-guard"   // the stock was read (and its rows locked, where they are)
	BeforeCommit Step = "before-commit"
	AfterCommit  Step = "after-commit"
)

// EventKind is something worth counting.
type EventKind string

// The kinds of event.
const (
	GuardTripped EventKind = "guard_tripped" // CHECK (stock >= 0) refused a write: the last guard
	Retried      EventKind = "retried"       // a whole transaction ran again (40001, 40P01, version conflict …)
	Degraded     EventKind = "degraded"      // a purchase went on with the row lock alone, Redis being unreachable
	Bypassed     EventKind = "bypassed"      // … or its lock having been busy for all of MaxWait
	Shed         EventKind = "shed"          // … and one that was refused, the bound being reached
	Ambiguous    EventKind = "ambiguous"     // a COMMIT whose reply was lost
	Resolved     EventKind = "resolved"      // … and was decided by running again with the same key
)

// Config of a Service. Pool is required; Locks only for strategies that use Redis.
type Config struct {
	Pool      *pgxpool.Pool // made with PoolConfig
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
