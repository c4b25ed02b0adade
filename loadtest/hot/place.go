// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/loadtest/site"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/invariant"
	"shop/transfer"
)

// place is where a comparison runs: a database of its own, and names of its own for locks.
type place struct {
	Case     string
	Postgres string
	Prefix   string
	Key      string // of a client of the API
	Bonus    string // URL of the bonus service, for wallets

	explain func(plan string) // gets what PostgreSQL tells of the statements of this process; nil: they are not explained
}

// prepare makes a place with the objects of all cases.
func prepare(ctx context.Context, name string) (p place, drop func() error, err error) {
	p.Case, p.Prefix = name, "hot_"+strings.ToLower(rand.Text()[:10])
	if name == "wallet" {
		drop, err = prepareWallet(ctx, &p)
		if err != nil && drop != nil {
			return p, nil, errors.Join(err, drop())
		}
		return p, drop, err
	}
	database, err := site.CreateDatabase(ctx, os.Getenv("SHOP_POSTGRES_URL"), p.Prefix)
	if err != nil {
		return p, nil, err
	}
	p.Postgres = database.URL
	drop = func() error { return database.Drop(ctx) }
	for _, step := range []func() error{
		func() error { return inventory.Migrate(ctx, p.Postgres) },
		func() error { return transfer.Migrate(ctx, p.Postgres) },
		func() error { return stock(ctx, p) },
		func() error { return openAccounts(ctx, p) },
		func() (err error) { p.Key, err = addClient(ctx, p); return err },
	} {
		if err := step(); err != nil {
			return p, nil, errors.Join(err, drop())
		}
	}
	return p, drop, nil
}

// Twice the connections of shop serve, and leases that are longer than its own: none ends while the machine is busy.
const (
	connections = 32
	ttl         = 10 * time.Second
)

func connect(ctx context.Context, p place) (*pgxpool.Pool, error) {
	config, err := pgtx.PoolConfig(p.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	if p.explain != nil {
		maps.Copy(config.ConnConfig.RuntimeParams, autoExplain)
		config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { p.explain(n.Message) }
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// open returns a function that sends one request until it is answered.
func (t turn) open(ctx context.Context) (request func(context.Context) error, done func(), err error) {
	switch t.Place.Case {
	case "account":
		service, done, err := bank(ctx, t.Place, t.Strategy, t.Work)
		return transfers(service), done, err
	case "wallet":
		return credits(t.Place, t.Strategy, t.Work)
	default:
		service, done, err := shop(ctx, t.Place, t.Strategy, t.Work)
		return purchases(service, t.Place.Case == "many"), done, err
	}
}

// encode makes the Reply of an outcome, and takes a time for it.
func encode[T any](outcome T, refusal error, work time.Duration) (idempotency.Reply, error) {
	time.Sleep(work)
	reply, err := idempotency.JSON(outcome, refusal)
	if reply.Status = 201; refusal != nil {
		reply.Status = 409
	}
	return reply, err
}

// answered repeats a request that is still open.
func answered(request func() error) error {
	for {
		err := request()
		if !errors.Is(err, locking.ErrBusy) && !errors.Is(err, locking.ErrOutcomeUnknown) && !errors.Is(err, idempotency.ErrInProgress) {
			return err
		}
	}
}

// check checks the invariants of a place.
func check(ctx context.Context, p place) error {
	audit := auditSQL
	if p.Case == "wallet" {
		audit = auditWallet
	}
	findings, err := audit(ctx, p)
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

func auditSQL(ctx context.Context, p place) (invariant.Findings, error) {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	checks := inventory.Invariants.Checks
	if p.Case == "account" {
		checks = transfer.Invariants.Checks
	}
	return invariant.Run(ctx, checks, invariant.SQL(conn))
}
