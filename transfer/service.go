package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"shop/locking"
	"shop/locking/breaker"
	"shop/locking/idempotency/pgtx"
)

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

// run runs an operation with the Service's strategy.
func (s *Service) run(ctx context.Context, o *operation) (Reply, error) {
	if err := s.step(ctx, BeforeAcquire); err != nil {
		return Reply{}, err
	}
	reply, err := s.method(s, ctx, o)
	for due := new(dueError); errors.As(err, &due); {
		reply, err = s.runAfter(ctx, o, due)
	}
	if err != nil && o.Unknown() && !errors.Is(err, locking.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err) // it is not the error of the attempt that may have committed
	}
	_ = s.step(ctx, AfterRelease)
	return reply, err
}

// runAfter runs an operation again when the payer's expired holds have given back
// their money, each in a transaction of its own, under its own two accounts.
func (s *Service) runAfter(ctx context.Context, o *operation, due *dueError) (Reply, error) {
	if o.rounds++; o.rounds > dueRounds {
		return Reply{}, fmt.Errorf("%w: gave %d expired holds of account %s back, and there are more", locking.ErrBusy, dueMax*dueRounds, o.from)
	}
	for _, tr := range due.holds {
		if _, err := s.expire(ctx, tr); err != nil {
			return Reply{}, fmt.Errorf("transfer: expire hold %s: %w", tr.ID, err)
		}
	}
	return s.method(s, ctx, o)
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
