package transfer

import (
	"cmp"
	"fmt"
	"time"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

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
