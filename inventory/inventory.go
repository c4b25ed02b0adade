package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/breaker"
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

// Service sells. It is safe for concurrent use; several processes may share one database.
type Service struct {
	db       *pgtx.DB
	pool     *pgxpool.Pool
	strategy string
	locks    locking.Store
	lock     locking.Options
	encode   Encode
	count    func(EventKind, string)
	breaker  *breaker.Breaker // in front of locks
	bypass   *bypass
}

// New checks cfg and makes a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	db, err := pgtx.New(pgtx.Config{
		Pool: cfg.Pool, Guards: []string{"products_stock_check"}, Count: cfg.Count, Failpoint: cfg.Failpoint,
	})
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	s := &Service{
		db:       db,
		pool:     cfg.Pool,
		strategy: cmp.Or(cfg.Strategy, "redis+row"),
		locks:    cfg.Locks,
		lock:     cfg.Lock,
		encode:   cfg.Encode,
		count:    cfg.Count,
		bypass: &bypass{
			slots: make(chan struct{}, max(1, int(cfg.Pool.Config().MaxConns)/2)), log: cmp.Or(cfg.Log, slog.Default()),
		},
	}
	s.breaker = s.newBreaker()
	// The lock is held for milliseconds, so a waiter asks that often.
	s.lock.Backoff.Base = cmp.Or(s.lock.Backoff.Base, time.Millisecond)
	s.lock.Backoff.Max = cmp.Or(s.lock.Backoff.Max, 20*time.Millisecond)
	s.lock.MaxWait = cmp.Or(s.lock.MaxWait, pgtx.LockTimeout)
	s.lock.MaxHold = cmp.Or(s.lock.MaxHold, 10*time.Second)
	if s.encode == nil {
		s.encode = encodeJSON
	}
	if s.count == nil {
		s.count = func(EventKind, string) {}
	}
	if _, err := s.method(s.strategy); err != nil {
		return nil, err
	}
	return s, nil
}

// BuyWith takes all lines from stock, or nothing, with a strategy, unsafe ones
// included; "": the Service's own.
//
// A nil error means that the Reply is stored under the request's key: the order,
// or a refusal. While the key is kept (pgtx.KeysKept) every repetition gets the
// same bytes. An error was not stored.
func (s *Service) BuyWith(ctx context.Context, strategy string, req Request, lines []Line) (Reply, error) {
	strategy = cmp.Or(strategy, s.strategy)
	buy, err := s.method(strategy)
	if err != nil {
		return Reply{}, err
	}
	p, err := newPurchase(strategy, req, lines)
	if err != nil {
		return Reply{}, err
	}
	ctx, cancel := s.db.Bound(ctx) // the wait for Redis included
	defer cancel()
	// Before any lock: a replay needs no stock, no product, and no Redis.
	if reply, found, err := s.db.Lookup(ctx, req); found || err != nil {
		return reply, err
	}
	return buy(s, ctx, p)
}

// run runs body in a transaction. What it refuses for a reason that stays is
// stored under the key, without the locks of the rows.
func (s *Service) run(ctx context.Context, op *pgtx.Op, body pgtx.Body) (Reply, error) {
	return s.db.Run(ctx, op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		reply, err := body(ctx, tx)
		if !errors.Is(err, ErrOutOfStock) && !errors.Is(err, ErrAlreadyCancelled) {
			return reply, err
		}
		if reply, err = s.encode(Order{}, err); err != nil {
			return Reply{}, fmt.Errorf("inventory: encode refusal: %w", err)
		}
		return pgtx.Refuse(reply)
	})
}

// encodeJSON is the default of Config.Encode.
func encodeJSON(o Order, refusal error) (Reply, error) {
	var outcome any = o
	if refusal != nil {
		outcome = map[string]string{"refused": refusal.Error()}
	}
	body, err := json.Marshal(outcome)
	return Reply{Body: body}, err
}

type buyFunc func(*Service, context.Context, *purchase) (Reply, error)

// method is a Strategy with its code. One file each.
type method struct {
	Strategy
	buy buyFunc
}

var (
	postgres = []string{"postgres"}
	both     = []string{"redis", "postgres"}
)

var methods = []method{
	{Strategy{"naive", false, postgres, "reads, checks, and writes what it computed: two buyers of the last piece both get it"}, (*Service).naive},
	{Strategy{"redis-only", false, both, "the same under a Redis lock: right until the lock is lost, which PostgreSQL does not notice"}, (*Service).redisOnly},
	{Strategy{"redis+row", true, both, "a Redis lock to queue outside PostgreSQL, SELECT … FOR UPDATE to be right"}, (*Service).redisRow},
	{Strategy{"row", true, postgres, "SELECT … FOR UPDATE: the second buyer waits, and reads what the first committed"}, (*Service).row},
	{Strategy{"atomic", true, postgres, "UPDATE … WHERE stock >= quantity: check and write are one statement"}, (*Service).atomic},
	{Strategy{"optimistic", true, postgres, "UPDATE … WHERE version = the one that was read: the second buyer starts again"}, (*Service).optimistic},
	{Strategy{"serializable", true, postgres, "SERIALIZABLE: PostgreSQL aborts what could not have come one after the other, and it runs again"}, (*Service).serializable},
	{Strategy{"advisory", true, postgres, "pg_advisory_xact_lock on a hash of the sku: buyers queue, no row is locked while they wait"}, (*Service).advisory},
	{Strategy{"advisory-try", true, postgres, "pg_try_advisory_xact_lock: the same, but a buyer gives its connection back and asks again"}, (*Service).advisoryTry},
}

// method finds a strategy, and checks that what it needs is there.
func (s *Service) method(name string) (buyFunc, error) {
	for _, m := range methods {
		if m.Name != name {
			continue
		}
		if s.locks == nil && slices.Contains(m.Stores, "redis") {
			return nil, fmt.Errorf("inventory: strategy %q needs Config.Locks", name)
		}
		return m.buy, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, name)
}

// Strategies lists the ways to take stock, from the most naive to the least.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}
