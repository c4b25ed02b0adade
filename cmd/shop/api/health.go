// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
)

const (
	readyWait = time.Second            // bounds the checks of a probe
	readyKept = 200 * time.Millisecond // bounds the queries that public probes can cause
)

// Livez reports that the process serves. It checks no database, because restarting the
// process would not repair one.
func (s handlers) Livez(c echo.Context) error {
	return c.JSON(http.StatusOK, Health{Status: HealthOK})
}

// Degraded lists the stores that are unreachable while the shop serves.
type Degraded struct {
	Locks     bool // Redis: purchases use row locks only
	Transfers bool // etcd: transfers are refused, all else works
	Wallets   bool // MongoDB: requests for wallets are busy, all else works
}

// Readyz reports whether this replica should get requests. It is ready without Redis,
// etcd or MongoDB, because the other flows still work.
func (s handlers) Readyz(c echo.Context) error {
	ctx := c.Request().Context()
	if s.draining.Load() {
		return c.JSON(http.StatusServiceUnavailable, Health{Status: HealthDraining})
	}
	health := Health{Status: HealthOK, Postgres: new(PostgresOK), Locks: new(LocksOK), Transfers: new(TransfersOK), Wallets: new(WalletsOK)}
	degraded, err := s.readiness.get(ctx)
	if degraded.Locks {
		health.Status, health.Locks = HealthDegraded, new(LocksUnreachable)
	}
	if degraded.Transfers {
		health.Status, health.Transfers = HealthDegraded, new(TransfersUnreachable)
	}
	if degraded.Wallets {
		health.Status, health.Wallets = HealthDegraded, new(WalletsUnreachable)
	}
	if err != nil {
		health.Status, health.Postgres = HealthUnavailable, new(PostgresUnreachable)
		return c.JSON(http.StatusServiceUnavailable, health)
	}
	return c.JSON(http.StatusOK, health)
}

// readiness keeps the last result for a while. Concurrent probes share one check. It logs each store when it becomes
// unreachable and when it is back, once, however many probes and requests meet that.
type readiness struct {
	check    func(context.Context) (Degraded, error)
	log      *slog.Logger
	mu       sync.Mutex
	kept     time.Duration
	until    time.Time
	degraded Degraded
	err      error
}

func (r *readiness) get(ctx context.Context) (Degraded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.until) {
		// All waiting probes get the result, so it is not cancelled with the first one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWait)
		defer cancel()
		before, failed := r.degraded, r.err
		r.degraded, r.err = r.check(ctx)
		r.until = time.Now().Add(r.kept)
		r.changed(ctx, "postgres", failed != nil, r.err != nil, "this replica is not ready")
		r.changed(ctx, "redis", before.Locks, r.degraded.Locks, "purchases use row locks only")
		r.changed(ctx, "etcd", before.Transfers, r.degraded.Transfers, "transfers are refused")
		r.changed(ctx, "mongo", before.Wallets, r.degraded.Wallets, "requests for wallets are refused")
	}
	return r.degraded, r.err
}

func (r *readiness) changed(ctx context.Context, store string, was, is bool, effect string) {
	switch {
	case is && !was && store == "postgres":
		r.log.WarnContext(ctx, "store unreachable", "store", store, "effect", effect, "error", r.err)
	case is && !was:
		r.log.WarnContext(ctx, "store unreachable", "store", store, "effect", effect)
	case was && !is:
		r.log.InfoContext(ctx, "store reachable again", "store", store)
	}
}

// Ping runs a query that needs the shop's tables and a primary that accepts writes, which an open port or
// SELECT 1 would not show. Give it a separate connection: behind a busy pool it would
// time out, and the load balancer would take a busy replica out of service.
func Ping(ctx context.Context, pool *pgxpool.Pool) error {
	var readOnly, clients bool
	err := pool.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean, EXISTS (SELECT FROM clients)`, pgx.QueryExecModeExec).
		Scan(&readOnly, &clients)
	if err == nil && readOnly {
		err = errors.New("api: PostgreSQL is read-only: a standby, or default_transaction_read_only is on")
	}
	return err
}
