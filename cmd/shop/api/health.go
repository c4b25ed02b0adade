package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	readyWait = time.Second            // bounds the checks of a probe
	readyKept = 200 * time.Millisecond // bounds the queries that public probes can cause
)

// Livez reports that the process serves. It checks no database, because restarting the
// process would not repair one.
func (s handlers) Livez(context.Context, LivezRequestObject) (LivezResponseObject, error) {
	return Livez200JSONResponse{Status: HealthOK}, nil
}

// Degraded lists the stores that are unreachable while the shop serves.
type Degraded struct {
	Locks     bool // Redis: purchases use row locks only
	Transfers bool // etcd: transfers are refused, all else works
	Wallets   bool // MongoDB: requests for wallets are busy, all else works
}

// Readyz reports whether this replica should get requests. It is ready without Redis,
// etcd or MongoDB, because the other flows still work.
func (s handlers) Readyz(ctx context.Context, _ ReadyzRequestObject) (ReadyzResponseObject, error) {
	if s.draining.Load() {
		return Readyz503JSONResponse{Status: HealthDraining}, nil
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
		s.log.WarnContext(ctx, "not ready", "error", err)
		health.Status, health.Postgres = HealthUnavailable, new(PostgresUnreachable)
		return Readyz503JSONResponse(health), nil
	}
	return Readyz200JSONResponse(health), nil
}

// readiness keeps the last result for readyKept. Concurrent probes share one check.
type readiness struct {
	check    func(context.Context) (Degraded, error)
	mu       sync.Mutex
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
		r.degraded, r.err = r.check(ctx)
		r.until = time.Now().Add(readyKept)
	}
	return r.degraded, r.err
}

// Ping runs a query that needs the shop's tables and a primary, which an open port or
// SELECT 1 would not show. Give it a separate connection: behind a busy pool it would
// time out, and the load balancer would take a busy replica out of service.
func Ping(ctx context.Context, pool *pgxpool.Pool) error {
	var standby, clients bool
	err := pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM clients)`).Scan(&standby, &clients)
	if err == nil && standby {
		err = errors.New("api: PostgreSQL is a standby")
	}
	return err
}
