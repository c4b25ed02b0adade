// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"shop/locking/breaker"
	"shop/locking/combine"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Line is a requested quantity of one product.
type Line struct {
	SKU       string
	Quantity  int64
	UnitPrice *int64 `json:",omitempty"` // that the buyer has seen: at another price the order is refused; nil: any
}

// OrderLine is a Line with its unit price at the time of sale.
type OrderLine struct {
	SKU       string
	Quantity  int64
	UnitPrice int64
}

// Status of an order.
type Status string

// An order is confirmed when it is created, and may be cancelled once.
const (
	Confirmed Status = "confirmed"
	Cancelled Status = "cancelled"
)

// Order is a committed purchase.
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

// Request and Reply are the types that all lessons share.
type (
	Request = idempotency.Request
	Reply   = idempotency.Reply
)

// Encode turns an outcome that will be stored (an order, or a refusal) into the Reply. It must not do I/O.
type Encode func(Order, error) (Reply, error)

// Service manages the stock and its orders. It is safe for concurrent use; several processes may share one database.
type Service struct {
	cfg      Config // completed by New
	db       *pgtx.DB
	breaker  *breaker.Breaker // in front of cfg.Locks
	bypass   chan struct{}    // one slot for each purchase that goes on without the lock
	logBusy  *rate.Sometimes
	method   method
	combiner *combine.Combiner[*purchase, Reply] // nil without cfg.Locks
}

// Buy takes all lines from stock, or none. A nil error means that the Reply is stored under the request's key: the order, or
// a refusal. While the key is kept (pgtx.KeysKept), every retry gets the same bytes. Errors are not stored.
func (s *Service) Buy(ctx context.Context, req Request, lines []Line) (Reply, error) {
	m := s.method
	if len(lines) == 1 && slices.Contains(s.cfg.Hot, lines[0].SKU) {
		m, _ = s.find(nameCombined) // New has found it
	}
	p, err := newPurchase(m.Name, req, lines)
	if err != nil {
		return Reply{}, err
	}
	ctx, cancel := s.db.Bound(ctx) // includes the wait for Redis
	defer cancel()
	// Before any lock: a replay needs no stock, no product, and no Redis. A batch looks up its keys itself.
	if !m.batch || len(lines) > 1 {
		if reply, found, err := s.db.Lookup(ctx, req); found || err != nil {
			return reply, err
		}
	}
	if err := s.step(ctx, BeforeAcquire, m.Name); err != nil {
		return Reply{}, err
	}
	reply, err := m.buy(s, ctx, p)
	_ = s.step(ctx, AfterRelease, m.Name)
	return reply, err
}

// Step is a point of a purchase at which a test may stop, slow or kill the process.
type Step = pgtx.Step

// The steps, in order. Cancellations pass the steps between BeforeAcquire and AfterRelease.
const (
	BeforeAcquire Step = "before-acquire"  // validated, and the key has no reply; nothing is held
	AfterAcquire       = pgtx.AfterAcquire // the Redis lock is held, if there is one; nothing was read
	AfterBegin         = pgtx.AfterBegin
	AfterGuard         = pgtx.AfterGuard // the stock was read, under its lock if there is one
	AfterKey           = pgtx.AfterKey   // the idempotency key is inserted
	BeforeCommit       = pgtx.BeforeCommit
	AfterCommit        = pgtx.AfterCommit
	AfterRelease  Step = "after-release" // the locks were released, no reply was sent yet
)

// Steps lists the steps in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterKey, BeforeCommit, AfterCommit, AfterRelease}
}

// step runs the failpoint at a step outside of the transaction.
func (s *Service) step(ctx context.Context, step Step, strategy string) error {
	if s.cfg.Failpoint == nil {
		return nil
	}
	s.cfg.Failpoint(ctx, step, strategy)
	return context.Cause(ctx)
}

// run runs body in a transaction. A final refusal is stored under the key, without holding the row locks.
func (s *Service) run(ctx context.Context, op *pgtx.Op, body pgtx.Body) (Reply, error) {
	return s.db.Run(ctx, op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		reply, err := body(ctx, tx)
		if !isRefusal(err) {
			return reply, err
		}
		if reply, err = s.cfg.Encode(Order{}, err); err != nil {
			return Reply{}, err
		}
		return pgtx.Refuse(reply)
	})
}
