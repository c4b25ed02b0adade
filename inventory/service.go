package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// Service sells. It is safe for concurrent use; several processes may share one database.
type Service struct {
	pool      *pgxpool.Pool
	strategy  string
	locks     locking.Store
	lock      locking.Options
	encode    Encode
	count     func(EventKind, string)
	failpoint func(context.Context, Step, string)
	fallback  *fallback
	probe     string // the key that Degraded asks for
}

// New checks cfg and makes a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	if cfg.Pool == nil {
		return nil, errors.New("inventory: Config.Pool is missing")
	}
	if cfg.Pool.Config().ConnConfig.RuntimeParams["lock_timeout"] == "" {
		return nil, errors.New("inventory: the pool's waits are unbounded: make it with PoolConfig")
	}
	s := &Service{
		pool:      cfg.Pool,
		strategy:  cmp.Or(cfg.Strategy, "redis+row"),
		locks:     cfg.Locks,
		lock:      cfg.Lock,
		encode:    cfg.Encode,
		count:     cfg.Count,
		failpoint: cfg.Failpoint,
		fallback:  newFallback(max(1, int(cfg.Pool.Config().MaxConns)/2), cmp.Or(cfg.Log, slog.Default())),
		probe:     "probe/" + uuid.NewString(),
	}
	// The lock is held for milliseconds, so that whoever waits asks that often.
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
	if _, err := s.method(s.strategy); err != nil {
		return nil, err
	}
	return s, nil
}

// BuyWith takes all lines from stock, or nothing, with a strategy, unsafe ones
// included; "": the Service's own.
//
// A nil error means that the Reply is stored under the request's key: the order,
// or a refusal. While the key is kept (KeysKept) every repetition gets the same
// bytes. An error was not stored.
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
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Before any lock: a replay needs no stock, no product, and no Redis.
	if reply, found, err := s.replay(ctx, req); found || err != nil {
		return reply, err
	}
	return buy(s, ctx, p)
}

// method finds the strategy, and that what it needs is there.
func (s *Service) method(name string) (buyFunc, error) {
	for _, m := range methods {
		if m.Name != name {
			continue
		}
		if m.usesRedis() && s.locks == nil {
			return nil, fmt.Errorf("inventory: strategy %q needs Config.Locks", name)
		}
		return m.buy, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, name)
}

// encodeJSON is the Encode of those who have no wire format of their own.
func encodeJSON(o Order, refusal error) (Reply, error) {
	var outcome any = o
	if refusal != nil {
		outcome = map[string]string{"refused": refusal.Error()}
	}
	body, err := json.Marshal(outcome)
	return Reply{Body: body}, err
}
