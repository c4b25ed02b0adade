// SPDX-License-Identifier: MIT

package soak

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// application is the application_name of this package's own connections, which are not counted.
const application = "soak"

// Postgres reads the database of the service. Connections, transactions and locks are those that
// the server reports.
func Postgres(url string) Source {
	return Source{
		Gauges: []Gauge{
			{Name: "PostgreSQL: connections", From: "pg_stat_activity", Share: 0.1, Slack: 6, Steps: true},
			{Name: "PostgreSQL: open transactions", From: "pg_stat_activity", Slack: 6, Empty: true},
			{Name: "PostgreSQL: locks of rows and keys", From: "pg_locks", Slack: 12, Empty: true},
			{Name: "PostgreSQL: holds that are not ended", From: "transfers", Share: 0.5, Slack: 20, Empty: true},
			{Name: "PostgreSQL: idempotency keys", From: "idempotency_keys", Share: 0.25, Slack: 200},
			{Name: "PostgreSQL: size of idempotency keys", Unit: "MiB", From: "pg_total_relation_size", Share: 0.5, Slack: 16},
			{Name: "PostgreSQL: clients", From: "clients", Nature: true},
		},
		Read: func(ctx context.Context) ([]float64, error) {
			config, err := pgx.ParseConfig(url)
			if err != nil {
				return nil, err
			}
			config.RuntimeParams["application_name"] = application
			conn, err := pgx.ConnectConfig(ctx, config) // the server may have been started again since
			if err != nil {
				return nil, err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			values := make([]float64, 7)
			fields := make([]any, len(values))
			for i := range values {
				fields[i] = &values[i]
			}
			err = conn.QueryRow(ctx, postgresSQL, application).Scan(fields...)
			return values, err
		},
	}
}

const postgresSQL = `
WITH session AS (
    SELECT pid, state
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> $1)
SELECT (SELECT count(*) FROM session)::float8,
       (SELECT count(*) FROM session WHERE state <> 'idle')::float8,
       (SELECT count(*) FROM pg_locks JOIN session USING (pid) WHERE locktype IN ('advisory', 'transactionid', 'tuple'))::float8,
       (SELECT count(*) FROM transfers WHERE state = 'reserved')::float8,
       (SELECT count(*) FROM idempotency_keys)::float8,
       pg_total_relation_size('idempotency_keys')::float8 / 1048576,
       (SELECT count(*) FROM clients)::float8`
