package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/transfer"
)

// etcdSettings say where the locks of accounts live.
type etcdSettings struct {
	EtcdEndpoints []string `name:"etcd-endpoints" env:"SHOP_ETCD_ENDPOINTS" sep:"," placeholder:"HOST:PORT" help:"etcd, its members separated by commas. Needed by strategies that lock there. It may come later than the shop: until then no money moves, and the rest works."`
	LockPrefix    string   `env:"SHOP_LOCK_PREFIX" default:"shop" help:"Begins the names of the locks in Redis and in etcd. Replicas must agree."`
}

// connect makes a client, which connects when it is used. It says nothing: what
// matters of its connections comes back as errors.
func (s etcdSettings) connect() (*clientv3.Client, error) {
	config := etcdlock.Config(s.EtcdEndpoints...)
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--etcd-endpoints: %w", err)}
	}
	return client, nil
}

// transferSettings say how money moves.
type transferSettings struct {
	etcdSettings `embed:""`
	Strategy     string        `name:"transfer-strategy" env:"SHOP_TRANSFER_STRATEGY" default:"etcd-fenced" help:"How money moves: etcd-fenced, row or serializable; the others in the lab only."`
	TTL          time.Duration `name:"transfer-lock-ttl" env:"SHOP_TRANSFER_LOCK_TTL" default:"5s" help:"How long a lock of accounts outlives its holder: whole seconds, at least 2 with etcd's own settings."`
}

// validate keeps what loses money out of any shop that is not a lab.
func (s transferSettings) validate(lab bool) error {
	strategy, ok := findTransferStrategy(s.Strategy)
	switch {
	case !ok:
		return fmt.Errorf("--transfer-strategy %s: there is none of that name; there are: %s", s.Strategy, strings.Join(transferStrategyNames(), ", "))
	case !strategy.Safe && !lab:
		return fmt.Errorf("--transfer-strategy %s loses money; to watch it, add --lab", s.Strategy)
	case s.Strategy == "etcd-fence-only" && !lab: // its fence holds among writers that bring one, and another replica may run another strategy
		return errors.New("--transfer-strategy etcd-fence-only loses updates beside replicas or batches that run row or serializable; use etcd-fenced, which is right beside all of these, or add --lab to watch it")
	case usesEtcd(strategy) && len(s.EtcdEndpoints) == 0:
		return fmt.Errorf("--transfer-strategy %s needs etcd: set --etcd-endpoints or SHOP_ETCD_ENDPOINTS, as in 127.0.0.1:2379", s.Strategy)
	case s.TTL < time.Second || s.TTL%time.Second != 0:
		return fmt.Errorf("--transfer-lock-ttl %v: must be whole seconds, and at least 1s", s.TTL)
	}
	return nil
}

// offered are the strategies that a request may ask for in the lab.
func (s transferSettings) offered() (list []string) {
	for _, strategy := range transfer.Strategies() {
		if !usesEtcd(strategy) || len(s.EtcdEndpoints) > 0 {
			list = append(list, strategy.Name)
		}
	}
	return list
}

// needEtcd: the lab lets each request choose any strategy that is offered.
func (s transferSettings) needEtcd(lab bool) bool {
	strategy, _ := findTransferStrategy(s.Strategy)
	return usesEtcd(strategy) || lab && len(s.EtcdEndpoints) > 0
}

func usesEtcd(s transfer.Strategy) bool { return slices.Contains(s.Stores, "etcd") }

func findTransferStrategy(name string) (transfer.Strategy, bool) {
	all := transfer.Strategies()
	i := slices.IndexFunc(all, func(s transfer.Strategy) bool { return s.Name == name })
	if i < 0 {
		return transfer.Strategy{}, false
	}
	return all[i], true
}

func transferStrategyNames() (list []string) {
	for _, s := range transfer.Strategies() {
		list = append(list, s.Name)
	}
	return list
}

// fences is etcd's store in the words of package transfer, which knows no etcd:
// a store whose fences begin anew is a source that the accounts do not know.
type fences struct{ *etcdlock.Store }

func (f fences) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	l, err := f.Store.TryAcquire(ctx, keys...)
	return l, translate(err)
}

func (f fences) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	l, err := f.Store.Acquire(ctx, keys...)
	return l, translate(err)
}

func translate(err error) error {
	if errors.Is(err, etcdlock.ErrEpoch) {
		return fmt.Errorf("%w: %w", transfer.ErrSource, err)
	}
	return err
}
