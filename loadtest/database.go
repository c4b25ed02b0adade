// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// Database is the private database of a scenario.
type Database struct {
	URL  string
	name string
	from string // URL of the server, for CREATE and DROP DATABASE
}

// CreateDatabase creates an empty database on a server.
func CreateDatabase(ctx context.Context, server, name string) (*Database, error) {
	own, err := withDatabase(server, name)
	if err != nil {
		return nil, err
	}
	d := &Database{URL: own, name: name, from: server}
	return d, d.server(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0")
}

// Drop removes the database and closes all connections to it, also when ctx has ended.
func (d *Database) Drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return d.server(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{d.name}.Sanitize()+" WITH (FORCE)")
}

func (d *Database) server(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, d.from)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// QuietWait is longer than the server's own limits on idle transactions.
const QuietWait = 20 * time.Second

// WaitQuiet waits until no other connection to the database of conn is left. It returns an error if one
// is left after the limit. As long as one is left, the last COMMIT of a killed replica may be in progress,
// and an audit would see half of it.
func WaitQuiet(ctx context.Context, conn *pgx.Conn, limit time.Duration) error {
	return WaitNone(ctx, limit, "connections are left on the database", func() (int64, error) {
		return invariant.Number(ctx, conn, `
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database()
  AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()`)
	})
}

// WaitNone waits until count returns 0. It returns an error if it does not within the limit.
func WaitNone(ctx context.Context, limit time.Duration, what string, count func() (int64, error)) error {
	began := time.Now()
	for {
		n, err := count()
		switch {
		case err != nil || n == 0:
			return err
		case time.Since(began) > limit || !fault.Wait(ctx, 20*time.Millisecond):
			return fmt.Errorf("cannot audit: %d %s after %v", n, what, time.Since(began).Round(time.Millisecond))
		}
	}
}

// FillTable adds a row for each item to a temporary table, which the queries of an audit can join. It
// creates the table if it does not exist.
func FillTable[T any](ctx context.Context, conn *pgx.Conn, name, columns string, items []T, row func(T) []any) error {
	var names []string
	for column := range strings.SplitSeq(columns, ",") {
		names = append(names, strings.Fields(column)[0])
	}
	_, err := conn.Exec(ctx, "CREATE TEMPORARY TABLE IF NOT EXISTS "+name+" ("+columns+")")
	if err == nil {
		_, err = conn.CopyFrom(ctx, pgx.Identifier{name}, names, pgx.CopyFromSlice(len(items), func(i int) ([]any, error) { return row(items[i]), nil }))
	}
	if err == nil {
		_, err = conn.Exec(ctx, "ANALYZE "+name)
	}
	if err != nil {
		return fmt.Errorf("audit: fill %s: %w", name, err)
	}
	return nil
}

// withDatabase returns the URL of a database on the server.
func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", errors.New("the proof needs PostgreSQL as a postgres:// URL (not shown, since it may hold a password)")
	}
	u.Path = "/" + name
	return u.String(), nil
}
