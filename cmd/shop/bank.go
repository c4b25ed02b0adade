package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/lockprom"
	"shop/locking/wrong/leaseid"
	"shop/transfer"
)

// bank moves money with an etcd that may come later than we do:
//
//	closed ──etcd answers──► open
//	  │  ▲                     └─ from here on, the transfer.Service knows itself when etcd is gone
//	  └──┘ asked again each second
//
// While it is closed, transfers are refused as busy; what needs no etcd goes on.
// So a server that is started while etcd is down sells, and shows accounts.
type bank struct {
	settings transferSettings
	lab      bool
	config   transfer.Config
	books    *transfer.Service // needs no etcd
	client   *clientv3.Client  // nil: nothing here needs etcd
	log      *slog.Logger
	stop     context.CancelFunc
	opening  sync.WaitGroup

	mu      sync.Mutex
	store   *etcdlock.Store   // nil: closed
	service *transfer.Service // nil: closed
	why     error             // … and why
}

// open makes a bank, closed if etcd does not answer within a third of the TTL.
func (s transferSettings) open(ctx context.Context, lab bool, config transfer.Config, log *slog.Logger, reg prometheus.Registerer) (_ *bank, err error) {
	b := &bank{settings: s, lab: lab, config: config, log: log, stop: func() {}}
	config.Strategy = "row"
	if b.books, err = transfer.New(config); err != nil {
		return nil, err
	}
	if !s.needEtcd(lab) {
		return b, nil
	}
	observer, err := lockprom.New(reg, "etcd")
	if err != nil {
		return nil, err
	}
	b.config.Lock = locking.Options{Observer: observer}
	if b.client, err = s.connect(); err != nil {
		return nil, err
	}
	switch err = b.tryOpen(ctx); {
	case err == nil:
		return b, nil
	case errors.Is(err, etcdlock.ErrTTL):
		b.close()
		return nil, &usageError{err}
	}
	log.Warn("etcd does not answer: no money moves until it does", "error", err)
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.opening.Go(func() { b.keepTrying(ctx) })
	return b, nil
}

// reopenEvery is how often an etcd is asked that has not answered yet.
const reopenEvery = time.Second

func (b *bank) keepTrying(ctx context.Context) {
	for b.tryOpen(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopenEvery):
		}
	}
	b.log.Info("etcd is there: money moves")
}

// tryOpen asks etcd once.
func (b *bank) tryOpen(ctx context.Context) error {
	store, service, err := b.connect(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store, b.service, b.why = store, service, err
	return err
}

func (b *bank) connect(ctx context.Context) (*etcdlock.Store, *transfer.Service, error) {
	store, err := etcdlock.New(ctx, b.client, b.settings.TTL, etcdlock.Options{Prefix: b.settings.LockPrefix})
	if err != nil {
		return nil, nil, err
	}
	config := b.config
	config.Strategy, config.Locks, config.Source = b.settings.Strategy, fences{store}, store.Epoch()
	if b.lab {
		config.LeaseIDs, err = leaseid.New(b.client, b.settings.LockPrefix+"/leaseid/", b.settings.TTL)
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

// with is the Service that moves money with a strategy; "": our own.
func (b *bank) with(strategy string) (*transfer.Service, error) {
	if strategy == "" {
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
	return service.With(strategy)
}

// reachableWait is how long etcd, and Redis, may take to answer a probe.
const reachableWait = 500 * time.Millisecond

// reachable says whether money can move, as far as etcd is concerned. It asks for
// what only a majority can answer.
func (b *bank) reachable(ctx context.Context) bool {
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

// close gives back what etcd knows of us.
func (b *bank) close() {
	b.stop()
	b.opening.Wait()
	if b.store != nil {
		b.store.Close()
	}
	if b.client != nil {
		_ = b.client.Close()
	}
}
