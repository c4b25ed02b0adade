package api

import (
	"context"
	"errors"
	"time"
)

// readyWait bounds the question to PostgreSQL: a probe that waits is no answer.
const readyWait = time.Second

// Livez says that the process answers, and nothing about what it depends on:
// starting it again would not bring a database back.
func (s handlers) Livez(context.Context, LivezRequestObject) (LivezResponseObject, error) {
	return Livez200JSONResponse{HealthJSONResponse{Status: HealthOK}}, nil
}

// Readyz says whether requests should be sent here. Without the lock store they
// should: row locks go on alone.
func (s handlers) Readyz(ctx context.Context, _ ReadyzRequestObject) (ReadyzResponseObject, error) {
	if s.draining.Load() {
		return Readyz503JSONResponse{Status: HealthDraining}, nil
	}
	health := Health{Status: HealthOK, Postgres: new(PostgresOK), Locks: new(LocksOK)}
	if s.cfg.Degraded() {
		health.Status, health.Locks = HealthDegraded, new(LocksUnreachable)
	}
	if err := s.askPostgres(ctx); err != nil {
		s.log.WarnContext(ctx, "not ready", "error", err)
		health.Status, health.Postgres = HealthUnavailable, new(PostgresUnreachable)
		return Readyz503JSONResponse(health), nil
	}
	return Readyz200JSONResponse{HealthJSONResponse(health)}, nil
}

// askPostgres runs a query that needs our tables and a primary: an open port
// says nothing, and neither does SELECT 1.
func (s *Server) askPostgres(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	var standby, clients bool
	err := s.cfg.Pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM clients)`).Scan(&standby, &clients)
	if err == nil && standby {
		err = errors.New("api: PostgreSQL is a standby")
	}
	return err
}
