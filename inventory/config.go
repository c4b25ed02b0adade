// SPDX-License-Identifier: MIT

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Config configures a Service. Pool is required; Locks only for strategies that use Redis.
type Config struct {
	Pool      *pgxpool.Pool   // made with pgtx.PoolConfig
	Locks     locking.Store   // of redislock.New: a release wakes the next request
	Lock      locking.Options // zero fields: defaults for locks that are held for milliseconds
	Strategy  string          // default "redis+row"
	Hot       []string        // skus of products that are bought with "combined", unless the caller names a strategy
	Encode    Encode          // nil: status 0 and the outcome as JSON
	Log       *slog.Logger
	Count     func(kind EventKind, strategy string)                 // nil: nothing is counted
	Failpoint func(ctx context.Context, step Step, strategy string) // nil in production
}

// New validates cfg and returns a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	db, err := pgtx.New(pgtx.Config{
		Pool: cfg.Pool, Guards: []string{"products_stock_check", "stock_slots_units_check", "purchased_within_limit"}, Count: cfg.Count, Failpoint: cfg.Failpoint,
	})
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	cfg.Strategy = cmp.Or(cfg.Strategy, "redis+row")
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	// The lock is held for milliseconds, so a waiter of a Store that is no locking.Waiter retries that often.
	cfg.Lock.Backoff.Base = cmp.Or(cfg.Lock.Backoff.Base, time.Millisecond)
	cfg.Lock.Backoff.Max = cmp.Or(cfg.Lock.Backoff.Max, 20*time.Millisecond)
	cfg.Lock.MaxWait = cmp.Or(cfg.Lock.MaxWait, pgtx.LockTimeout)
	cfg.Lock.MaxHold = cmp.Or(cfg.Lock.MaxHold, 10*time.Second)
	if cfg.Encode == nil {
		cfg.Encode = idempotency.JSON[Order]
	}
	if cfg.Count == nil {
		cfg.Count = func(EventKind, string) {}
	}
	s := &Service{
		cfg: cfg, db: db,
		bypass:  make(chan struct{}, max(1, int(cfg.Pool.Config().MaxConns)/2)),
		logBusy: &rate.Sometimes{Interval: 10 * time.Second},
	}
	s.breaker = s.newBreaker()
	if len(cfg.Hot) > 0 {
		if _, err := s.find(nameCombined); err != nil {
			return nil, err
		}
		if cfg.Strategy == nameSlots {
			return nil, fmt.Errorf("inventory: Config.Hot with %q: to %q a product is sold out while its units are in slots", nameSlots, nameCombined)
		}
	}
	if s.method, err = s.find(cfg.Strategy); err != nil || cfg.Locks == nil {
		return s, err
	}
	s.combiner, err = s.newCombiner()
	return s, err
}

// With returns a copy of s with another strategy, safe or not, for all products. The copy has the same queues.
func (s *Service) With(strategy string) (*Service, error) {
	m, err := s.find(strategy)
	if err != nil {
		return nil, err
	}
	other := *s
	other.method, other.cfg.Strategy, other.cfg.Hot = m, m.Name, nil
	return &other, nil
}

// EventKind is a kind of counted event.
type EventKind = pgtx.Event

// The kinds of event.
const (
	GuardTripped           = pgtx.GuardTripped // a CHECK of the stock or of a purchase limit, the last line of defence, refused a write
	Retried                = pgtx.Retried      // a transaction ran again: 40001, 40P01, version conflict, busy advisory lock …
	Ambiguous              = pgtx.Ambiguous    // a COMMIT was sent and not answered
	Resolved               = pgtx.Resolved     // … and was decided by running again with the same key
	Degraded     EventKind = "degraded"        // a purchase went on with the row lock alone: Redis was unreachable
	Bypassed     EventKind = "bypassed"        // … or its lock was busy for all of MaxWait
	Shed         EventKind = "shed"            // … or was refused: too many purchases already run without the lock
)
