package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/breaker"
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

// Service moves money. It is safe for concurrent use; several processes may share one database.
type Service struct {
	db        *pgtx.DB
	strategy  string
	method    runFunc
	locks     locking.Store
	epoch     string
	leaseIDs  locking.Store
	lock      locking.Options
	encode    Encode
	count     func(EventKind, string)
	failpoint func(context.Context, Step, string)
	breaker   *breaker.Breaker // in front of locks
}

// New checks cfg and makes a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	db, err := pgtx.New(pgtx.Config{
		Pool:  cfg.Pool,
		Count: cfg.Count, Failpoint: cfg.Failpoint,
		Guards: []string{"accounts_funds", "accounts_held_check"},
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	s := &Service{
		db:        db,
		locks:     cfg.Locks,
		epoch:     cfg.Epoch,
		leaseIDs:  cfg.LeaseIDs,
		lock:      cfg.Lock,
		encode:    cfg.Encode,
		count:     cfg.Count,
		failpoint: cfg.Failpoint,
	}
	// The lock is held for milliseconds: should the store have no queue, a waiter
	// asks that often.
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
	s.breaker = s.newBreaker()
	return s.With(cmp.Or(cfg.Strategy, "etcd-fenced"))
}

// With is the same Service with another strategy, unsafe ones included.
func (s *Service) With(strategy string) (*Service, error) {
	for _, m := range methods {
		switch {
		case m.Name != strategy:
			continue
		case m.fenced && s.epoch == "":
			return nil, fmt.Errorf("transfer: strategy %q needs Config.Epoch: fences of two counters cannot be compared", strategy)
		case m.locks(s) == nil && m.usesEtcd():
			return nil, fmt.Errorf("transfer: strategy %q needs its lock store", strategy)
		}
		other := *s
		other.strategy, other.method = m.Name, m.run
		return &other, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, strategy)
}

// step lets a test act outside of the transaction.
func (s *Service) step(ctx context.Context, step Step) error {
	if s.failpoint == nil {
		return nil
	}
	s.failpoint(ctx, step, s.strategy)
	return context.Cause(ctx)
}

// encodeJSON is the Encode without a wire format of its own.
func encodeJSON(t Transfer, refusal error) (Reply, error) {
	var outcome any = t
	if refusal != nil {
		outcome = map[string]string{"refused": refusal.Error()}
	}
	body, err := json.Marshal(outcome)
	return Reply{Body: body}, err
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
