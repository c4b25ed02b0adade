package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	readyWait = time.Second            // a probe that waits for longer has its answer
	readyKept = 200 * time.Millisecond // anyone may ask, so not everyone is a query
)

// Livez says that the process answers, and nothing about what it depends on:
// starting it again would not bring a database back.
func (s handlers) Livez(context.Context, LivezRequestObject) (LivezResponseObject, error) {
	return Livez200JSONResponse{HealthJSONResponse{Status: HealthOK}}, nil
}

// Degraded says what the shop goes on without.
type Degraded struct {
	Locks     bool // of purchases: row locks go on alone
	Transfers bool // their locks: no money moves, all else goes on
	Wallets   bool // the database they are in: nothing is done with them, all else goes on
}

// Readyz says whether requests should be sent here. Without a lock store they
// should: there is something left that can be done.
func (s handlers) Readyz(ctx context.Context, _ ReadyzRequestObject) (ReadyzResponseObject, error) {
	if s.draining.Load() {
		return Readyz503JSONResponse{Status: HealthDraining}, nil
	}
	health := Health{Status: HealthOK, Postgres: new(PostgresOK), Locks: new(LocksOK), Transfers: new(TransfersOK), Wallets: new(WalletsOK)}
	degraded, err := s.readiness.ask(ctx)
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
	return Readyz200JSONResponse{HealthJSONResponse(health)}, nil
}

// readiness keeps the last answer for a moment. Those who come together ask once.
type readiness struct {
	question func(context.Context) (Degraded, error)
	mu       sync.Mutex
	until    time.Time
	degraded Degraded
	err      error
}

func (r *readiness) ask(ctx context.Context) (Degraded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.until) {
		// The answer is for all who ask, so it does not end with the one who asked first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWait)
		defer cancel()
		r.degraded, r.err = r.question(ctx)
		r.until = time.Now().Add(readyKept)
	}
	return r.degraded, r.err
}

// Ping runs a query that needs our tables and a primary: an open port says
// nothing, and neither does SELECT 1. Give it a connection of its own, or a
// server that is merely busy looks dead, and loses its traffic to its neighbours.
func Ping(ctx context.Context, pool *pgxpool.Pool) error {
	var standby, clients bool
	err := pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM clients)`).Scan(&standby, &clients)
	if err == nil && standby {
		err = errors.New("api: PostgreSQL is a standby")
	}
	return err
}
