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

// Config of a Service. Pool is required; the stores for the strategies that use them.
type Config struct {
	Pool     *pgxpool.Pool   // made with pgtx.PoolConfig
	Locks    locking.Store   // one that fences, and whose fences outlive a restart: etcd's
	Epoch    string          // names the counter of its fences: changes whenever they begin anew
	LeaseIDs locking.Store   // for lease-id-fence alone: one whose Fence is the lease's id
	Lock     locking.Options // zero fields: what suits locks that are held for milliseconds
	Strategy string          // default "etcd-fenced"
	Encode   Encode          // nil: status 0 and the outcome as JSON
	// Count receives events; nil: nothing is counted.
	Count func(kind EventKind, strategy string)
	// Failpoint is called at each step, for tests; nil in production.
	Failpoint func(ctx context.Context, step Step, strategy string)
}

// New checks cfg and makes a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	db, err := pgtx.New(pgtx.Config{
		Pool: cfg.Pool, Guards: []string{"accounts_funds", "accounts_held_check"}, Count: cfg.Count, Failpoint: cfg.Failpoint,
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	// The lock is held for milliseconds: should the store have no queue, a waiter
	// asks that often.
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

// With is the same Service with another strategy, unsafe ones included.
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

// The steps, in order. Strategies without a lock store begin with AfterAcquire, naive
// begins its transaction after AfterGuard, and etcd-fence-only and etcd-unfenced
// pass AfterBegin twice.
const (
	BeforeAcquire Step = "before-acquire"  // b2: checked; nothing is held
	AfterAcquire       = pgtx.AfterAcquire // b5: both locks are held, nothing was read
	AfterBegin         = pgtx.AfterBegin   // b6: in a transaction, and past the last look at ctx before the guard
	AfterGuard         = pgtx.AfterGuard   // b8: both accounts were read (and locked, where they are)
	AfterKey           = pgtx.AfterKey     // b7: the idempotency key is inserted; behind the rows, as the order of locks has it
	BeforeCommit       = pgtx.BeforeCommit // b9: everything is written
	AfterCommit        = pgtx.AfterCommit  // b10: and committed
	AfterRelease  Step = "after-release"   // b11: the locks were given back, no reply was sent yet
)

// Steps lists them in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterKey, BeforeCommit, AfterCommit, AfterRelease}
}

// EventKind is something worth counting.
type EventKind = pgtx.Event

// The kinds of event.
const (
	FenceRefused EventKind = "fence_refused"   // the guard refused an old fence: ErrStale
	GuardTripped           = pgtx.GuardTripped // CHECK (balance >= held) refused a write: the last guard
	Retried                = pgtx.Retried      // a whole transaction ran again (40001, 40P01, connection lost …)
	Ambiguous              = pgtx.Ambiguous    // a COMMIT whose answer was lost
	Resolved               = pgtx.Resolved     // … and was decided by running again with the same key
	Unavailable  EventKind = "unavailable"     // refused, because the lock service did not answer
	Swept        EventKind = "swept"           // a hold expired, and its money is free
)
