package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
	"shop/locking/breaker"
	"shop/wallet"
	"shop/wallet/bonus"
)

// till keeps wallets in a MongoDB that may come later than the server, and go. In
// front of it is a circuit breaker: while MongoDB has not answered for outageGrace, wallets
// are busy, at once. The driver would wait for a server, each request for itself, until
// the shop is full of waiting requests and nothing can be bought any more. An election
// is shorter than outageGrace: a request that comes in one waits for its end.
type till struct {
	strategy string
	service  *wallet.Service // nil: never open
	db       *mongo.Database // nil: as above
	probe    *mongo.Database // the same, over one connection of its own: a busy shop is not a dead one
	bonus    *bonusClient    // nil: there is no bonus
	lab      *bonus.Service  // nil: somebody else's service, or none
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

// connect makes two clients, which connect when they are used.
func (t *till) connect(s mongoSettings) (err error) {
	if t.db, err = s.connect(); err != nil {
		return err
	}
	t.probe, err = s.connect(options.Client().SetMaxPoolSize(1))
	return err
}

// watch asks once, and from then on in the background.
func (t *till) watch(ctx context.Context) {
	t.breaker = breaker.New(breaker.Config{
		Probe:   func(ctx context.Context) error { return checkCollections(ctx, t.probe) },
		Every:   lookEvery / 2, // each look is a probe
		Timeout: lookWait,
		Grace:   outageGrace,
		Changed: func(why error) {
			if why == nil {
				t.log.Info("MongoDB is there: wallets are open")
			} else {
				t.log.Warn("MongoDB does not answer: nothing is done with wallets until it does", "error", why)
			}
		},
	})
	_ = t.breaker.Check(ctx)
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.watching.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, lookEvery)
			_ = t.breaker.Check(ctx)
		}
	})
}

// closed says why nothing is done with wallets now; nil: they are open.
func (t *till) closed() error {
	switch {
	case t.db == nil:
		return &closedError{errNoMongo}
	case t.breaker.Open():
		return &closedError{t.breaker.Why()}
	}
	return nil
}

// closedError matches locking.ErrBusy, since to a client it means the same:
// nothing was done, come again.
type closedError struct{ why error }

func (e *closedError) Error() string        { return "wallets are closed: " + e.why.Error() }
func (e *closedError) Is(target error) bool { return target == locking.ErrBusy }

// with is the Service that writes with a strategy; "": our own.
func (t *till) with(strategy string) (*wallet.Service, error) {
	if err := t.closed(); err != nil {
		return nil, err
	}
	if strategy == "" {
		strategy = t.strategy
	}
	return t.service.With(strategy)
}

// close ends what was opened; twice does no harm.
func (t *till) close() {
	t.stop()
	t.watching.Wait()
	disconnect(t.probe)
	disconnect(t.db)
	if t.bonus != nil {
		t.bonus.close()
	}
	if t.lab != nil {
		_ = t.lab.Close()
	}
}
