package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// Service moves money. It is safe for concurrent use; several processes may share one database.
type Service struct {
	pool      *pgxpool.Pool
	strategy  string
	method    runFunc
	locks     locking.Store
	source    string
	leaseIDs  locking.Store
	lock      locking.Options
	encode    Encode
	count     func(EventKind, string)
	failpoint func(context.Context, Step, string)
	gate      *gate
}

// New checks cfg and makes a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	if cfg.Pool == nil {
		return nil, errors.New("transfer: Config.Pool is missing")
	}
	if cfg.Pool.Config().ConnConfig.RuntimeParams["lock_timeout"] == "" {
		return nil, errors.New("transfer: the pool's waits are unbounded: make it with PoolConfig")
	}
	s := &Service{
		pool:      cfg.Pool,
		locks:     cfg.Locks,
		source:    cfg.Source,
		leaseIDs:  cfg.LeaseIDs,
		lock:      cfg.Lock,
		encode:    cfg.Encode,
		count:     cfg.Count,
		failpoint: cfg.Failpoint,
		gate:      &gate{},
	}
	// The lock is held for milliseconds, so that whoever waits asks that often,
	// should the store have no queue.
	s.lock.Backoff.Base = cmp.Or(s.lock.Backoff.Base, time.Millisecond)
	s.lock.Backoff.Max = cmp.Or(s.lock.Backoff.Max, 20*time.Millisecond)
	s.lock.MaxWait = cmp.Or(s.lock.MaxWait, LockTimeout)
	s.lock.MaxHold = cmp.Or(s.lock.MaxHold, 10*time.Second)
	if s.encode == nil {
		s.encode = encodeJSON
	}
	if s.count == nil {
		s.count = func(EventKind, string) {}
	}
	return s.With(cmp.Or(cfg.Strategy, "etcd-fenced"))
}

// With is the same Service with another strategy, unsafe ones included.
func (s *Service) With(strategy string) (*Service, error) {
	for _, m := range methods {
		switch {
		case m.Name != strategy:
			continue
		case m.fenced && s.source == "":
			return nil, fmt.Errorf("transfer: strategy %q needs Config.Source: a fence is worth nothing without knowing whose it is", strategy)
		case m.locks(s) == nil && m.usesEtcd():
			return nil, fmt.Errorf("transfer: strategy %q needs its lock store", strategy)
		}
		other := *s
		other.strategy, other.method = m.Name, m.run
		return &other, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, strategy)
}

// request is a job that somebody asked for, under a key.
func (s *Service) request(ctx context.Context, j *job) (Reply, error) {
	// Before any lock: a replay needs no account, and no etcd.
	if reply, found, err := s.replay(ctx, j.req, j.from); found || err != nil {
		return reply, err
	}
	return s.run(ctx, j)
}

// run is a job with the Service's strategy.
func (s *Service) run(ctx context.Context, j *job) (Reply, error) {
	if err := s.step(ctx, BeforeAcquire); err != nil {
		return Reply{}, err
	}
	reply, err := s.method(s, ctx, j)
	for due := new(dueError); errors.As(err, &due); {
		reply, err = s.runAfter(ctx, j, due)
	}
	if err != nil && j.unknown && !errors.Is(err, locking.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err) // whatever it was, it was not the first attempt's
	}
	_ = s.step(ctx, AfterRelease)
	return reply, err
}

// runAfter runs a job again when the payer's expired holds have given back
// their money, each in a transaction of its own, under its own two accounts.
func (s *Service) runAfter(ctx context.Context, j *job, due *dueError) (Reply, error) {
	if j.rounds++; j.rounds > dueRounds {
		return Reply{}, fmt.Errorf("%w: gave %d expired holds of account %s back, and there are more", locking.ErrBusy, dueMax*dueRounds, j.from)
	}
	for _, tr := range due.holds {
		if _, err := s.expire(ctx, tr); err != nil {
			return Reply{}, fmt.Errorf("transfer: expire hold %s: %w", tr.ID, err)
		}
	}
	return s.method(s, ctx, j)
}

// step is where a test may stop, slow or kill us outside of the transaction.
func (s *Service) step(ctx context.Context, step Step) error {
	if s.failpoint == nil {
		return nil
	}
	s.failpoint(ctx, step, s.strategy)
	return context.Cause(ctx)
}

// encodeJSON is the Encode of those who have no wire format of their own.
func encodeJSON(t Transfer, refusal error) (Reply, error) {
	var outcome any = t
	if refusal != nil {
		outcome = map[string]string{"refused": refusal.Error()}
	}
	body, err := json.Marshal(outcome)
	return Reply{Body: body}, err
}
