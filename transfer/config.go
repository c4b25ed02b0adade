// SPDX-License-Identifier: MIT

package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/combine"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// HotMax is how many hot accounts there may be: one lease has all of them, and etcd bounds its keys.
const HotMax = 64

// Config configures a Service. Pool is required. A lock store, and Epoch with Locks, are
// required by the strategies that use them.
type Config struct {
	Pool     *pgxpool.Pool   // made with pgtx.PoolConfig
	Locks    locking.Store   // must fence, and its fences must survive a restart, as etcd's do
	Epoch    string          // identifies the counter of the fences: must change when the counter starts anew
	LeaseIDs locking.Store   // for lease-id-fence only: a store whose Fence is the lease id
	Lock     locking.Options // zero fields get defaults for locks that are held for milliseconds
	Strategy string          // default "etcd-fenced"
	Hot      []uuid.UUID     // accounts between which transfers are "combined", unless With has named a strategy
	Encode   Encode          // nil: status 0 and the outcome as JSON
	Log      *slog.Logger    // of panics in a batch of combined; nil: slog.Default()
	// Count is called for each event; nil: nothing is counted.
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
	cfg.Strategy = cmp.Or(cfg.Strategy, "etcd-fenced")
	s := &Service{cfg: cfg, db: db, batched: (*Service).combined, owners: &combine.Owners[uuid.UUID, uuid.UUID]{}}
	s.breaker = s.newBreaker()
	switch {
	case cfg.Locks != nil && cfg.Epoch != "":
		if s.combiner, err = s.newCombiner(); err != nil {
			return nil, err
		}
		if len(cfg.Hot) > HotMax {
			return nil, fmt.Errorf("transfer: %d hot accounts, at most %d", len(cfg.Hot), HotMax)
		}
	case len(cfg.Hot) > 0:
		return nil, errors.New("transfer: Config.Hot needs Config.Locks and Config.Epoch")
	}
	made, err := s.With(cfg.Strategy)
	if err == nil {
		made.cfg.Hot = cfg.Hot
	}
	return made, err
}

// With returns a copy of s with another strategy, safe or not, for all accounts.
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
		other.cfg.Strategy, other.method, other.batch = m.Name, m.run, m.Name == nameCombined
		other.cfg.Hot = nil
		return &other, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, strategy)
}
