// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/cmd/shop/lab"
	"shop/locking"
	"shop/locking/etcdlock"
	"shop/transfer"
)

// transferBackend moves money under locks in etcd, which may be down when the server
// starts:
//
//	closed ──etcd replies──► open
//	  │  ▲                     └─ from here on, the transfer.Service detects outages itself
//	  └──┘ probed each second
//
// While the backend is closed, transfers are refused as busy. Everything else works: a
// server that starts while etcd is down sells stock and shows accounts.
type transferBackend struct {
	settings transferSettings
	lab      bool
	config   transfer.Config
	books    *transfer.Service // needs no etcd
	client   *clientv3.Client  // nil: no strategy needs etcd
	log      *slog.Logger
	stop     context.CancelFunc
	opening  sync.WaitGroup

	mu      sync.Mutex
	store   *etcdlock.Store   // nil: closed
	service *transfer.Service // nil: closed
	why     error             // why it is closed
}

// open returns a transferBackend, which is closed if etcd does not reply within a third of
// the TTL.
func (s transferSettings) open(ctx context.Context, lab bool, config transfer.Config, sig signals) (_ *transferBackend, err error) {
	b := &transferBackend{settings: s, lab: lab, config: config, log: sig.log, stop: func() {}}
	config.Strategy = "row"
	if b.books, err = transfer.New(config); err != nil {
		return nil, err
	}
	if !s.needEtcd(lab) {
		return b, nil
	}
	observer, err := sig.observer("etcd")
	if err != nil {
		return nil, err
	}
	b.config.Lock = locking.Options{Observer: observer}
	showBreaker(sig.metrics, "etcd", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.service == nil || b.service.Unreachable()
	})
	if b.client, err = s.connect(sig.traces.etcd); err != nil {
		return nil, err
	}
	switch err = b.tryOpen(ctx); {
	case err == nil:
		return b, nil
	case errors.Is(err, locking.ErrTTL):
		b.close()
		return nil, &usageError{err}
	}
	b.log.Warn("etcd does not reply: transfers are refused until it does", "error", err)
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.opening.Go(func() { b.keepTrying(ctx) })
	return b, nil
}

// reopenEvery is the time between probes of an etcd that has not replied yet.
const reopenEvery = time.Second

func (b *transferBackend) keepTrying(ctx context.Context) {
	for b.tryOpen(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopenEvery):
		}
	}
	b.log.Info("etcd replies: transfers are accepted")
}

// tryOpen probes etcd once.
func (b *transferBackend) tryOpen(ctx context.Context) error {
	store, service, err := b.connect(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store, b.service, b.why = store, service, err
	return err
}

func (b *transferBackend) connect(ctx context.Context) (*etcdlock.Store, *transfer.Service, error) {
	store, err := etcdlock.New(ctx, b.client, b.settings.TTL, etcdlock.Options{Prefix: b.settings.LockPrefix})
	if err != nil {
		return nil, nil, err
	}
	config := b.config
	config.Strategy, config.Hot, config.Locks, config.Epoch = b.settings.Strategy, b.settings.Hot, fences{store}, store.Epoch()
	if b.lab {
		config.LeaseIDs, err = lab.LeaseIDs(b.client, b.settings.LockPrefix, b.settings.TTL)
	}
	var service *transfer.Service
	if err == nil {
		service, err = transfer.New(config)
	}
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return store, service, nil
}

// with returns the Service that moves money with a strategy; "" means the configured one.
func (b *transferBackend) with(strategy string) (*transfer.Service, error) {
	own := strategy == ""
	if own {
		strategy = b.settings.Strategy
	}
	if s, _ := findTransferStrategy(strategy); !usesEtcd(s) {
		return b.books.With(strategy)
	}
	b.mu.Lock()
	service, why := b.service, b.why
	b.mu.Unlock()
	if service == nil {
		b.config.Count(transfer.Unavailable, strategy)
		return nil, &transfer.UnavailableError{Err: why}
	}
	if own {
		return service, nil
	}
	return service.With(strategy)
}

// queued returns how many transfers wait for a batch.
func (b *transferBackend) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.service == nil {
		return 0
	}
	return b.service.Queued()
}

// reachableWait bounds a probe of etcd or Redis.
const reachableWait = 500 * time.Millisecond

// reachable reports whether etcd has a majority, without which transfers are refused.
func (b *transferBackend) reachable(ctx context.Context) bool {
	if b.client == nil {
		return true
	}
	b.mu.Lock()
	open := b.service != nil
	b.mu.Unlock()
	if !open {
		return false
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), reachableWait)
	defer cancel()
	_, err := b.client.Get(ctx, b.settings.LockPrefix, clientv3.WithCountOnly())
	return err == nil
}

// close revokes the lease and closes the client.
func (b *transferBackend) close() {
	b.stop()
	b.opening.Wait()
	if b.service != nil {
		b.service.Close()
	}
	if b.store != nil {
		b.store.Close()
	}
	if b.client != nil {
		_ = b.client.Close()
	}
}

// transferSettings say how money moves.
type transferSettings struct {
	etcdSettings `embed:""`
	Strategy     string        `name:"transfer-strategy" env:"SHOP_TRANSFER_STRATEGY" default:"etcd-fenced" help:"How money moves: etcd-fenced, combined, row or serializable; the others in the lab only."`
	Hot          []uuid.UUID   `name:"hot-accounts" env:"SHOP_HOT_ACCOUNTS" placeholder:"ID" help:"Accounts between which money moves with the strategy combined: one transaction for all transfers that wait. Needs a --transfer-strategy that uses etcd."`
	TTL          time.Duration `name:"transfer-lock-ttl" env:"SHOP_TRANSFER_LOCK_TTL" default:"5s" help:"How long a lock of accounts outlives its holder: whole seconds, at least 2 with the default settings of etcd."`
}

// validate refuses unsafe strategies outside the lab.
func (s transferSettings) validate(lab bool) error {
	strategy, ok := findTransferStrategy(s.Strategy)
	switch {
	case !ok:
		return fmt.Errorf("--transfer-strategy %s: no such strategy; there are: %s", s.Strategy, strings.Join(transferStrategyNames(), ", "))
	case !strategy.Safe && !lab:
		return fmt.Errorf("--transfer-strategy %s loses money; to watch it, add --lab", s.Strategy)
	case s.Strategy == "etcd-fence-only" && !lab: // its fence refuses only writers that bring one, and another replica may run another strategy
		return errors.New("--transfer-strategy etcd-fence-only loses updates beside replicas or batches that run row or serializable; use etcd-fenced, which is safe beside all of these, or add --lab to watch it")
	case usesEtcd(strategy) && len(s.EtcdEndpoints) == 0:
		return fmt.Errorf("--transfer-strategy %s needs etcd: set --etcd-endpoints or SHOP_ETCD_ENDPOINTS, as in 127.0.0.1:2379", s.Strategy)
	case len(s.Hot) > 0 && !usesEtcd(strategy):
		return fmt.Errorf("--hot-accounts needs a lock in etcd, which --transfer-strategy %s does not use: set etcd-fenced", s.Strategy)
	case len(s.Hot) == 1:
		return errors.New("--hot-accounts: one account alone has no effect: name each account between which money moves often")
	case len(s.Hot) > transfer.HotMax:
		return fmt.Errorf("--hot-accounts: %d accounts, at most %d", len(s.Hot), transfer.HotMax)
	case s.TTL < time.Second || s.TTL%time.Second != 0:
		return fmt.Errorf("--transfer-lock-ttl %v: must be whole seconds, and at least 1s", s.TTL)
	}
	return nil
}

// offered returns the strategies that a request may choose in the lab.
func (s transferSettings) offered() (list []string) {
	for _, strategy := range transfer.Strategies() {
		if !usesEtcd(strategy) || len(s.EtcdEndpoints) > 0 {
			list = append(list, strategy.Name)
		}
	}
	return list
}

// needEtcd reports whether to connect to etcd: in the lab each request may choose any
// offered strategy.
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

// fences adapts etcd's store to package transfer, which does not depend on etcd: it
// translates etcdlock.ErrEpoch to transfer.ErrEpoch.
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
		return fmt.Errorf("%w: %w", transfer.ErrEpoch, err)
	}
	return err
}
