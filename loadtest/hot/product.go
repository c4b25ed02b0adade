package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/loadtest"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/invariant"
	"shop/locking/redislock"
)

// place is where a comparison runs: a database of its own, and names of its own for locks.
type place struct {
	Case     string
	Postgres string
	Prefix   string
}

// prepare makes a place with the hot objects of a case.
func prepare(ctx context.Context, name string) (p place, drop func() error, err error) {
	p.Case, p.Prefix = name, "hot_"+strings.ToLower(rand.Text()[:10])
	database, err := loadtest.CreateDatabase(ctx, os.Getenv("SHOP_POSTGRES_URL"), p.Prefix)
	if err != nil {
		return p, nil, err
	}
	p.Postgres = database.URL
	drop = func() error { return database.Drop(ctx) }
	if err = inventory.Migrate(ctx, p.Postgres); err == nil {
		err = stock(ctx, p)
	}
	if err != nil {
		return p, nil, errors.Join(err, drop())
	}
	return p, drop, nil
}

// hot is the product that all want. There is enough of it.
const hot = "HOT"

func stock(ctx context.Context, p place) error {
	service, done, err := shop(ctx, p, "row", 0)
	if err != nil {
		return err
	}
	defer done()
	_, err = service.AddProduct(ctx, inventory.Product{SKU: hot, Name: "hot", Price: 100, Currency: "EUR", Stock: 1 << 40})
	return err
}

// connections is the size of the pool, as that of shop serve.
const connections = 32

// shop opens a Service as shop serve does.
func shop(ctx context.Context, p place, strategy string, work time.Duration) (*inventory.Service, func(), error) {
	config, err := pgtx.PoolConfig(p.Postgres)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	const ttl = 10 * time.Second
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), ttl)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	store, err := redislock.New(client, ttl, redislock.Options{Prefix: p.Prefix})
	done := func() {
		store.Close()
		_ = client.Close()
		pool.Close()
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	service, err := inventory.New(inventory.Config{Pool: pool, Locks: store, Strategy: strategy, Encode: func(o inventory.Order, err error) (inventory.Reply, error) {
		time.Sleep(work)
		reply, encodeErr := idempotency.JSON(o, err)
		if reply.Status = 201; err != nil {
			reply.Status = 409
		}
		return reply, encodeErr
	}})
	if err != nil {
		done()
	}
	return service, done, err
}

// open returns a function that sends one request until it is answered.
func (t turn) open(ctx context.Context) (request func(context.Context) error, done func(), err error) {
	service, done, err := shop(ctx, t.Place, t.Strategy, t.Work)
	if err != nil {
		return nil, nil, err
	}
	lines := []inventory.Line{{SKU: hot, Quantity: 1}}
	return func(ctx context.Context) error {
		req := idempotency.Request{Client: uuid.New(), Key: uuid.NewString()}
		for {
			_, err := service.BuyWith(ctx, "", req, lines)
			if !errors.Is(err, locking.ErrBusy) && !errors.Is(err, locking.ErrOutcomeUnknown) && !errors.Is(err, idempotency.ErrInProgress) {
				return err
			}
		}
	}, done, nil
}

// check checks the invariants of a place.
func check(ctx context.Context, p place) error {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	findings, err := invariant.Run(ctx, inventory.Invariants.Checks, invariant.SQL(conn))
	if err != nil {
		return err
	}
	for code, found := range findings {
		if found.Count > 0 {
			return fmt.Errorf("%s is violated: %q", code, found.IDs)
		}
	}
	return nil
}
