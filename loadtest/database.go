package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// Database is one that a scenario has for itself.
type Database struct {
	URL  string
	name string
	from string // a URL of the server, from where it is made and dropped
}

// CreateDatabase makes an empty database on the server of a URL.
func CreateDatabase(ctx context.Context, server, name string) (*Database, error) {
	own, err := withDatabase(server, name)
	if err != nil {
		return nil, err
	}
	d := &Database{URL: own, name: name, from: server}
	return d, d.server(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0")
}

// Drop removes it, with connections to it, and also when ctx has ended.
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

// WaitQuiet returns when no other connection to the database of conn is left, or with an
// error when one is left after patience. The last COMMIT of a killed replica may still
// be on its way: an audit before that would see half of it.
func WaitQuiet(ctx context.Context, conn *pgx.Conn, patience time.Duration) error {
	began := time.Now()
	for {
		others, err := invariant.Number(ctx, conn, `
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database()
  AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()`)
		switch {
		case err != nil || others == 0:
			return err
		case time.Since(began) > patience || !fault.Wait(ctx, 20*time.Millisecond):
			return fmt.Errorf("%d connections are left on the database after %v: it cannot be audited", others, time.Since(began).Round(time.Millisecond))
		}
	}
}

// withDatabase is url with another database in its path.
func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", errors.New("the proof needs PostgreSQL as a postgres:// URL (not shown, since it may hold a password)")
	}
	u.Path = "/" + name
	return u.String(), nil
}
