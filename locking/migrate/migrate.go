// SPDX-License-Identifier: MIT

// Package migrate brings a PostgreSQL schema up to date, once, even if many replicas start
// at the same moment: goose holds a session advisory lock during the migration. Each
// package that migrates the database has its own lock and version table.
package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib" // goose uses database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"shop/locking/idempotency/pgtx"
)

// Up runs the files of the folder migrations that the table versions does not record yet,
// in the schema of databaseURL (its search_path). The steps of first run before them.
func Up(ctx context.Context, databaseURL string, files fs.FS, versions string, first ...func(context.Context, *pgx.Conn) error) (err error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return pgtx.ErrURL
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrate %s: %w", versions, err)
		}
	}()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	switch pooled, err := pgtx.Pooled(ctx, conn); {
	case err != nil:
		return err
	case pooled: // the lock is that of a session, which a pooler may give to another client
		return fmt.Errorf("%w: a migration needs a session of its own: give it the address of PostgreSQL itself", pgtx.ErrPooler)
	}
	var schema string
	if err := conn.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return fmt.Errorf("search_path has no schema: %w", err)
	}
	for _, step := range first {
		if err := step(ctx, conn); err != nil {
			return err
		}
	}
	name := sha256.Sum256([]byte(versions + "/" + schema))
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(int64(binary.BigEndian.Uint64(name[:]))),
		lock.WithLockTimeout(1, 60), // retries every second, for a minute
	)
	if err != nil {
		return err
	}
	if files, err = fs.Sub(files, "migrations"); err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versions), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
