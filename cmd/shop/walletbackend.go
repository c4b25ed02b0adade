// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
	"shop/locking/breaker"
	"shop/wallet"
	"shop/wallet/bonus"
)

// walletBackend serves the wallets in MongoDB, which may be down when the server starts
// or later. A circuit breaker opens when MongoDB has not replied for outageGrace. Then
// requests for wallets are refused as busy at once. Without it each request would wait in
// the driver for a server, until waiting requests fill the shop and purchases fail too.
// An election is shorter than outageGrace, so requests wait until it ends.
type walletBackend struct {
	service  *wallet.Service // nil: no MongoDB is configured
	db       *mongo.Database // nil: no MongoDB is configured
	probe    *mongo.Database // the same over a separate connection: a busy pool must not look like an outage
	bonus    *bonus.Client   // nil: there is no bonus
	lab      *bonus.Service  // the lab's own bonus service, or nil
	log      *slog.Logger
	stop     context.CancelFunc
	watching sync.WaitGroup
	breaker  *breaker.Breaker // in front of MongoDB
}

const (
	lookEvery   = 500 * time.Millisecond
	lookWait    = time.Second
	outageGrace = 3 * time.Second
)

var errNoMongo = errors.New("no MongoDB: set --mongo-url or SHOP_MONGO_URL")

// connect makes two clients. They connect at their first use.
func (b *walletBackend) connect(s mongoSettings, sig signals) (err error) {
	if b.db, err = s.connect(sig.traces.mongo(), watchMongo(sig.metrics)); err != nil {
		return err
	}
	b.probe, err = s.connect(options.Client().SetMaxPoolSize(1))
	return err
}

// watch probes MongoDB once, and then in the background. It returns an error if MongoDB replies and has no such hot wallet;
// one that replies later gets a line of the log.
func (b *walletBackend) watch(ctx context.Context, hot []uuid.UUID) error {
	b.breaker = breaker.New(breaker.Config{
		Probe:   func(ctx context.Context) error { return checkCollections(ctx, b.probe) },
		Every:   lookEvery / 2, // so that each Check is a probe
		Timeout: lookWait,
		Grace:   outageGrace,
		Changed: func(why error) {
			if why == nil {
				b.log.Info("MongoDB replies: requests for wallets are accepted")
			} else {
				b.log.Warn("MongoDB does not reply: requests for wallets are refused as busy until it does", "error", why)
			}
		},
	})
	look := func(ctx context.Context) error {
		if b.breaker.Check(ctx) != nil || len(hot) == 0 {
			return nil
		}
		err := b.checkHot(ctx, hot)
		if err == nil || errors.Is(err, errUnknownHot) {
			hot = nil
		}
		return err
	}
	if err := look(ctx); errors.Is(err, errUnknownHot) {
		return &usageError{err}
	}
	if errors.Is(b.breaker.Why(), errNoSet) { // no outage, which may end
		return &usageError{errNoSet}
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.watching.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, lookEvery)
			if err := look(ctx); err != nil {
				b.log.Error("the hot wallets", "error", err)
			}
		}
	})
	return nil
}

// checkHot returns errUnknownHot for wallets that do not exist.
func (b *walletBackend) checkHot(ctx context.Context, hot []uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	var found []uuid.UUID
	if err := b.probe.Collection("wallets").Distinct(ctx, "_id", bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: hot}}}}).Decode(&found); err != nil {
		return err
	}
	return unknownHot("--hot-wallets", hot, found)
}

// closed returns why requests for wallets are busy, or nil if they are served.
func (b *walletBackend) closed() error {
	switch {
	case b.db == nil:
		return &closedError{errNoMongo}
	case b.breaker.Open():
		return &closedError{b.breaker.Why()}
	}
	return nil
}

// closedError matches locking.ErrBusy, since it means the same to a client: nothing was
// done, retry.
type closedError struct{ why error }

func (e *closedError) Error() string        { return "wallets are closed: " + e.why.Error() }
func (e *closedError) Is(target error) bool { return target == locking.ErrBusy }

// with returns the Service that writes with a strategy; "" means the configured one.
func (b *walletBackend) with(strategy string) (*wallet.Service, error) {
	if err := b.closed(); err != nil {
		return nil, err
	}
	if strategy == "" {
		return b.service, nil
	}
	return b.service.With(strategy)
}

// files is how many connections to MongoDB and to the bonus service there may be: one request uses one of each.
func (b *walletBackend) files() int {
	if b.db == nil {
		return 0
	}
	n := wallet.PoolMax
	if b.bonus != nil {
		n *= 2
	}
	return n
}

// close closes all clients. It may be called twice.
func (b *walletBackend) close() {
	b.stop()
	b.watching.Wait()
	if b.service != nil {
		b.service.Close()
	}
	disconnect(b.probe)
	disconnect(b.db)
	if b.bonus != nil {
		b.bonus.Close()
	}
	if b.lab != nil {
		_ = b.lab.Close()
	}
}

// walletSettings say how wallets are written.
type walletSettings struct {
	Strategy string      `name:"wallet-strategy" env:"SHOP_WALLET_STRATEGY" default:"lockid" help:"How wallets are written: lockid, combined or inc. The lab has more."`
	Hot      []uuid.UUID `name:"hot-wallets" env:"SHOP_HOT_WALLETS" placeholder:"ID" help:"Wallets that are credited and debited with the strategy combined: one transaction for all operations that wait."`
	BonusURL string      `name:"bonus-url" env:"SHOP_BONUS_URL" placeholder:"URL" help:"Address of the bonus service, as in http://127.0.0.1:8090. The shop sends it POST /v1/bonuses for each credit. Without it there is no bonus, except in the lab, which starts its own service."`
}

// validate allows unsafe strategies in the lab only.
func (s walletSettings) validate(lab bool) error {
	strategy, ok := findWalletStrategy(s.Strategy)
	switch {
	case !ok:
		return fmt.Errorf("--wallet-strategy %s: no such strategy; there are: %s", s.Strategy, strings.Join(walletStrategyNames(), ", "))
	case !strategy.Safe && !lab:
		return fmt.Errorf("--wallet-strategy %s loses money, or gives a bonus twice; to watch it, add --lab", s.Strategy)
	}
	if s.BonusURL == "" {
		return nil
	}
	if err := checkURL("--bonus-url", s.BonusURL); err != nil {
		return err
	}
	if u, err := url.Parse(s.BonusURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("--bonus-url: want the address of a service, as in http://127.0.0.1:8090")
	}
	return nil
}

// open returns a walletBackend, which is closed if MongoDB does not reply to the first probe.
func (s walletSettings) open(ctx context.Context, mongo mongoSettings, lab bool, config wallet.Config, sig signals) (_ *walletBackend, err error) {
	b := &walletBackend{log: sig.log, stop: func() {}}
	if mongo.MongoURL == "" {
		b.log.Warn("wallets are off", "error", errNoMongo)
		return b, nil
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if config.Bonus, err = b.bonusFunc(s.BonusURL, lab, sig.traces); err != nil {
		return nil, err
	}
	if err := b.connect(mongo, sig); err != nil {
		return nil, err
	}
	config.Database, config.Strategy, config.Hot = b.db, s.Strategy, s.Hot
	if b.service, err = wallet.New(config); err != nil {
		return nil, err
	}
	return b, b.watch(ctx, s.Hot)
}

// bonusFunc returns the function that requests a bonus, or nil if there is no bonus.
func (b *walletBackend) bonusFunc(bonusURL string, lab bool, traces *tracer) (wallet.BonusFunc, error) {
	if bonusURL == "" && lab {
		var err error
		if b.lab, err = bonus.Serve(); err != nil {
			return nil, err
		}
		bonusURL = b.lab.URL()
	}
	if bonusURL == "" {
		return nil, nil
	}
	b.bonus = bonus.NewClient(strings.TrimSuffix(bonusURL, "/"), traces.transport)
	return b.bonus.Call, nil
}

func findWalletStrategy(name string) (wallet.Strategy, bool) {
	all := wallet.Strategies()
	i := slices.IndexFunc(all, func(s wallet.Strategy) bool { return s.Name == name })
	if i < 0 {
		return wallet.Strategy{}, false
	}
	return all[i], true
}

func walletStrategyNames() (list []string) {
	for _, s := range wallet.Strategies() {
		list = append(list, s.Name)
	}
	return list
}
