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
	"shop/wallet"
	"shop/wallet/bonus"
)

// till keeps wallets in a MongoDB that may come later than we do, and go:
//
//	closed ──it answers, and has our collections──► open
//	  ▲                                              │
//	  └──────────no answer for patience──────────────┘
//
// While it is closed, wallets are busy, and that is told at once. The driver would
// wait for a server, each request for itself, until the shop is full of those who
// wait and nobody can buy any more. An election is shorter than patience: whoever
// comes in one waits for its end.
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

	mu   sync.Mutex
	seen time.Time // when it answered last
	why  error     // … and what it says since; nil: it answered
}

const (
	lookEvery = 500 * time.Millisecond
	lookWait  = time.Second
	patience  = 3 * time.Second
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

// watch looks once, and from then on in the background.
func (t *till) watch(ctx context.Context) {
	if err := t.look(ctx); err != nil {
		t.log.Warn("nothing is done with wallets until MongoDB is there", "error", err)
	}
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.watching.Go(func() {
		was := t.closed() != nil
		for ctx.Err() == nil {
			pause(ctx, lookEvery)
			_ = t.look(ctx)
			is := t.closed()
			switch {
			case is != nil && !was:
				t.log.Warn("MongoDB is gone: nothing is done with wallets until it is back", "error", is)
			case is == nil && was:
				t.log.Info("MongoDB is there: wallets are open")
			}
			was = is != nil
		}
	})
}

func (t *till) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	err := checkCollections(ctx, t.probe)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why = err; err == nil {
		t.seen = time.Now()
	}
	return err
}

// closed says why nothing is done with wallets now; nil: they are open.
func (t *till) closed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil || time.Since(t.seen) < patience {
		return nil
	}
	return &closedError{t.why}
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
