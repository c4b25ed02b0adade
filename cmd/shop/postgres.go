// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// database is the setting that most commands share.
type database struct {
	PostgresURL string `name:"postgres-url" env:"SHOP_POSTGRES_URL" placeholder:"URL" help:"PostgreSQL, as in postgres://user:password@host:5432/shop, or as in postgres://user@host:5432/shop?passfile=FILE with the password in a file as that of psql."`
}

// Validate is called by kong.
func (d *database) Validate() error {
	if d.PostgresURL == "" {
		return errors.New("no database: set --postgres-url or SHOP_POSTGRES_URL, as in postgres://user@127.0.0.1:5432/shop")
	}
	if strings.Contains(d.PostgresURL, "://") { // else the form with keywords
		if err := checkURL("--postgres-url", d.PostgresURL); err != nil {
			return err
		}
	}
	config, err := pgxpool.ParseConfig(d.PostgresURL)
	if err != nil {
		return errors.New("--postgres-url: not a PostgreSQL URL (not shown, because it may contain a password): want postgres://user:password@127.0.0.1:5432/shop")
	}
	return checkPassfile(d.PostgresURL, config.ConnConfig)
}

// checkPassfile refuses a URL that names a passfile without a password for this server. pgx would connect without a password.
func checkPassfile(databaseURL string, config *pgx.ConnConfig) error {
	u, err := url.Parse(databaseURL)
	if err != nil { // the form with keywords
		return nil
	}
	file := u.Query().Get("passfile")
	if file == "" || config.Password != "" {
		return nil
	}
	if _, err := os.ReadFile(file); err != nil {
		return fmt.Errorf("--postgres-url: no password: %w\nset passfile to a file that this user may read", err)
	}
	host := config.Host
	if network, _ := pgconn.NetworkAddress(host, config.Port); network == "unix" {
		host = "localhost" // as pgx looks it up
	}
	return fmt.Errorf("--postgres-url: no password in %s\nadd the line %s:%d:%s:%s:PASSWORD, or remove passfile if the server asks for no password",
		file, passField.Replace(host), config.Port, passField.Replace(config.Database), passField.Replace(config.User))
}

// passField escapes a field of a password file, such as the address of an IPv6 host.
var passField = strings.NewReplacer(`\`, `\\`, `:`, `\:`)

// connectWait bounds a command's attempt to reach a server.
const connectWait = 5 * time.Second

// open makes a pool of at most size connections (0: the URL's setting) and checks it.
func (d *database) open(ctx context.Context, size int, more ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgtx.PoolConfig(d.PostgresURL) // bounds every wait at the server
	if err != nil {
		return nil, err
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "shop"
	}
	if size > 0 {
		config.MaxConns = int32(size)
	}
	for _, change := range more {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	if err := pgtx.Check(ctx, pool); errors.Is(err, pgtx.ErrPooler) {
		pool.Close()
		return nil, &usageError{err}
	} else if err != nil {
		pool.Close()
		return nil, &usageError{fmt.Errorf("PostgreSQL does not answer: %w\nis it running, and is --postgres-url (SHOP_POSTGRES_URL) right?", err)}
	}
	return pool, nil
}
