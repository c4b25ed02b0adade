// SPDX-License-Identifier: MIT

package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
	"shop/locking/combine"
	"shop/locking/idempotency"
)

// Service runs operations. It is safe for concurrent use; several processes may share one database.
type Service struct {
	client     *mongo.Client
	wallets    *mongo.Collection
	entries    *mongo.Collection
	operations *mongo.Collection
	method     method
	bonus      BonusFunc
	encode     Encode
	count      func(EventKind, string)
	failpoint  func(context.Context, Step, string)
	queues     *queues // nil: there are none
	combiner   *combine.Combiner[*operation, Reply]
	hot        []uuid.UUID
	owners     *combine.Owners[uuid.UUID, uuid.UUID] // of wallets
	turns      *turns                                // of the batches
}

// New checks cfg and returns a Service. It does no I/O.
func New(cfg Config) (*Service, error) {
	if cfg.Database == nil {
		return nil, errors.New("wallet: Config.Database is missing")
	}
	db := durable(cfg.Database)
	s := &Service{
		owners:     &combine.Owners[uuid.UUID, uuid.UUID]{},
		client:     db.Client(),
		wallets:    db.Collection("wallets"),
		entries:    db.Collection("wallet_entries"),
		operations: db.Collection("wallet_operations"),
		bonus:      cfg.Bonus,
		count:      cfg.Count,
		failpoint:  cfg.Failpoint,
	}
	if cfg.QueueMax >= 0 {
		s.queues = newQueues(cmp.Or(cfg.QueueMax, QueueMax))
	}
	encode := cfg.Encode
	if encode == nil {
		encode = idempotency.JSON[Operation]
	}
	s.encode = func(op Operation, refusal error) (Reply, error) {
		reply, err := encode(op, refusal)
		return reply, cmp.Or(err, reply.Check())
	}
	if s.count == nil {
		s.count = func(EventKind, string) {}
	}
	if s.bonus == nil {
		s.bonus = func(context.Context, BonusRequest) (int64, error) { return 0, nil }
	}
	var err error
	if s.combiner, err = s.newCombiner(cmp.Or(cfg.QueueMax, QueueMax), cfg.Log); err != nil {
		return nil, err
	}
	made, err := s.With(cmp.Or(cfg.Strategy, "lockid"))
	if err == nil {
		made.hot = cfg.Hot
	}
	return made, err
}

// durable returns db with the concerns, the read preference and the registry set. Otherwise they
// would come from the connection string or from the defaults of the replica set.
func durable(db *mongo.Database) *mongo.Database {
	return db.Client().Database(db.Name(), options.Database().
		SetWriteConcern(writes).SetReadConcern(reads).SetReadPreference(primary).SetRegistry(Registry()))
}

// With returns a copy of s with another strategy, safe or not, for all wallets. The copy has the same queues.
func (s *Service) With(strategy string) (*Service, error) {
	for _, m := range methods {
		if m.Name == strategy {
			other := *s
			other.method, other.hot = m, nil
			return &other, nil
		}
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, strategy)
}

// request runs an operation with the Service's strategy.
func (s *Service) request(ctx context.Context, o *operation) (Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, RequestTimeout, errRequestTimeout)
	defer cancel()
	if err := s.step(ctx, BeforeAcquire); err != nil {
		return Reply{}, err
	}
	if s.method.Name != nameCombined || o.intent.To != nil || !s.owners.Has(o.intent.Wallet, o.intent.Client) {
		if err := s.allowed(ctx, o); err != nil {
			return Reply{}, toPublic(ctx, err)
		}
		s.owners.Add(o.intent.Wallet, o.intent.Client)
	}
	reply, err := s.method.run(s, ctx, o)
	_ = s.step(ctx, AfterRelease)
	if errors.Is(err, errGuard) {
		s.count(GuardTripped, s.method.Name)
	}
	if err != nil && o.unknown && !errors.Is(err, idempotency.ErrKeyReused) { // err comes from a later round; the unknown commit may have happened
		return Reply{}, fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err)
	}
	if err == nil && o.unknown {
		s.count(Resolved, s.method.Name)
	}
	return reply, err
}

// step calls the failpoint of a step.
func (s *Service) step(ctx context.Context, step Step) error {
	if s.failpoint == nil {
		return nil
	}
	s.failpoint(ctx, step, s.method.Name)
	return context.Cause(ctx)
}
