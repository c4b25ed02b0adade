package transfer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Config configures a Service. Pool is required. A lock store, and Epoch with Locks, are
// required by the strategies that use them.
type Config struct {
	Pool     *pgxpool.Pool   // made with pgtx.PoolConfig
	Locks    locking.Store   // must fence, and its fences must survive a restart, as etcd's do
	Epoch    string          // identifies the counter of the fences: must change when the counter starts anew
	LeaseIDs locking.Store   // for lease-id-fence only: a store whose Fence is the lease id
	Lock     locking.Options // zero fields get defaults for locks that are held for milliseconds
	Strategy string          // default "etcd-fenced"
	Encode   Encode          // nil: status 0 and the outcome as JSON
	// Count, if not nil, is called for each event.
	Count func(kind EventKind, strategy string)
	// Failpoint is called at each step, for tests; nil in production.
	Failpoint func(ctx context.Context, step Step, strategy string)
}

// New checks cfg and returns a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	db, err := pgtx.New(pgtx.Config{
		Pool: cfg.Pool, Guards: []string{"accounts_funds", "accounts_held_check"}, Count: cfg.Count, Failpoint: cfg.Failpoint,
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	// The lock is held for milliseconds. If the store has no queue, a waiter polls at these intervals.
	cfg.Lock.Backoff.Base = cmp.Or(cfg.Lock.Backoff.Base, time.Millisecond)
	cfg.Lock.Backoff.Max = cmp.Or(cfg.Lock.Backoff.Max, 20*time.Millisecond)
	cfg.Lock.MaxWait = cmp.Or(cfg.Lock.MaxWait, pgtx.LockTimeout)
	cfg.Lock.MaxHold = cmp.Or(cfg.Lock.MaxHold, 10*time.Second)
	if cfg.Encode == nil {
		cfg.Encode = idempotency.JSON[Transfer]
	}
	if cfg.Count == nil {
		cfg.Count = func(EventKind, string) {}
	}
	s := &Service{cfg: cfg, db: db}
	s.breaker = s.newBreaker()
	return s.With(cmp.Or(cfg.Strategy, "etcd-fenced"))
}

// With returns a copy of s with another strategy, safe or not.
func (s *Service) With(strategy string) (*Service, error) {
	for _, m := range methods {
		switch {
		case m.Name != strategy:
			continue
		case m.fenced && s.cfg.Epoch == "":
			return nil, fmt.Errorf("transfer: strategy %q needs Config.Epoch: fences of two counters cannot be compared", strategy)
		case m.locks(s) == nil && m.usesEtcd():
			return nil, fmt.Errorf("transfer: strategy %q needs its lock store", strategy)
		}
		other := *s
		other.cfg.Strategy, other.method = m.Name, m.run
		return &other, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, strategy)
}

// Step is a point of a transfer at which a test may stop, slow or kill the process.
type Step = pgtx.Step

// The steps, in order (b2 … are the steps of doc.go). naive passes AfterBegin after AfterGuard, since
// it begins its transaction after the read. etcd-fence-only and etcd-unfenced pass AfterBegin twice.
const (
	BeforeAcquire Step = "before-acquire"  // b2: checked; nothing is held
	AfterAcquire       = pgtx.AfterAcquire // b5: both locks are held, if the strategy has locks; nothing was read
	AfterBegin         = pgtx.AfterBegin   // b6: in a transaction, after the last check of ctx before the guard
	AfterGuard         = pgtx.AfterGuard   // b8: both accounts were read, and locked if the strategy locks them
	AfterKey           = pgtx.AfterKey     // b7: the idempotency key is inserted, after the rows were locked
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
