// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
	gomysqllock "github.com/sanketplus/go-mysql-lock"

	"shop/locking"
	"shop/locking/mysqllock"
	"shop/locking/servertest"
)

// The DSN of MySQL or MariaDB, without a database, is in this setting.
const mysqlDSN = "SHOP_MYSQL_DSN"

// startMariaDB starts the server of mysqllock's tests, if the setting names no other. It flushes nothing to the disk: a
// commit is cheaper than on a server that survives a power cut.
func startMariaDB(t testing.TB) {
	if os.Getenv(mysqlDSN) != "" {
		return
	}
	_, dsn := servertest.StartMariaDB(t, func(ctx context.Context, dsn string) error {
		db, err := sql.Open("mysql", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		return db.PingContext(ctx)
	})
	must(t, os.Setenv(mysqlDSN, dsn))
}

// mysqlPool connects to the database bench, which has the tables and procedures of mysqllock.
func mysqlPool(ctx context.Context) (*sql.DB, error) {
	config, err := mysql.ParseDSN(os.Getenv(mysqlDSN))
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // the end of a measurement breaks connections
	config.InterpolateParams = true    // a statement with arguments is one round trip
	server, err := mysqlOpen(config)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if _, err := server.ExecContext(ctx, `CREATE DATABASE IF NOT EXISTS bench`); err != nil {
		return nil, err
	}
	config.DBName = "bench"
	db, err := mysqlOpen(config)
	if err != nil {
		return nil, err
	}
	return db, mysqllock.Migrate(ctx, db)
}

func mysqlOpen(config *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(66) // each of 64 waiters of a session lock has a connection
	db.SetMaxIdleConns(66)
	return db, nil
}

func openMySQLSessions(ctx context.Context) (locker, error) {
	db, err := mysqlPool(ctx)
	if err != nil {
		return nil, err
	}
	s, err := mysqllock.NewSessions(db, mysqllock.Options{Prefix: "bench"})
	return store(s, func() { s.Close(); _ = db.Close() }), err
}

func openMySQLTable(ctx context.Context) (locker, error) {
	db, err := mysqlPool(ctx)
	if err != nil {
		return nil, err
	}
	s, err := mysqllock.New(db, ttl, mysqllock.Options{})
	if err != nil {
		return nil, err
	}
	return store(s, func() { s.Close(); _ = db.Close() }), nil
}

// openGetLock is GET_LOCK on a connection of the pool. That of a waiter that leaves is closed by the driver.
func openGetLock(ctx context.Context) (locker, error) {
	db, err := mysqlPool(ctx)
	if err != nil {
		return nil, err
	}
	return locked{func(ctx context.Context, key string) (func() error, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		var granted sql.NullBool
		err = conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, ?)`, "raw:"+key, ttl.Seconds()).Scan(&granted)
		if err != nil || !granted.Bool {
			_ = conn.Close()
			return nil, cmp.Or(err, locking.ErrBusy)
		}
		return func() error {
			defer conn.Close()
			_, err := conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK(?)`, "raw:"+key)
			return unlessClosed(err)
		}, nil
	}, func() { _ = db.Close() }}, nil
}

func openGoMySQLLock(ctx context.Context) (locker, error) {
	db, err := mysqlPool(ctx)
	if err != nil {
		return nil, err
	}
	l := gomysqllock.NewMysqlLocker(db)
	return locked{func(ctx context.Context, key string) (func() error, error) {
		lock, err := l.ObtainTimeoutContext(ctx, "go:"+key, int(ttl.Seconds())) // MariaDB knows no wait without an end
		if err != nil {
			return nil, err
		}
		return func() error { return unlessClosed(lock.Release()) }, nil
	}, func() { _ = db.Close() }}, nil
}

// unlessClosed takes a release on a connection that is closed for done: the session that had the lock has ended. The driver
// closes a connection if ctx ends at the moment of the grant.
func unlessClosed(err error) error {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// openPolledMySQLTable is a lock table as it is usually written: one upsert to take, one update to release, and a wait
// between two attempts.
func openPolledMySQLTable(ctx context.Context) (locker, error) {
	db, err := mysqlPool(ctx)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS peer_locks (name VARBINARY(512) PRIMARY KEY, owner VARCHAR(32), expires DATETIME(6))`)
	if err != nil {
		return nil, err
	}
	return locked{func(ctx context.Context, key string) (func() error, error) {
		owner, whole := rand.Text(), context.WithoutCancel(ctx) // the driver closes the connection of a statement that ctx ends
		for {
			taken, err := mysqlTake(whole, db, key, owner)
			if err != nil || taken {
				return func() error {
					_, err := db.ExecContext(whole, `UPDATE peer_locks SET expires = '1970-01-01' WHERE name = ? AND owner = ?`, key, owner)
					return err
				}, err
			}
			if err := pause(ctx, retryEvery); err != nil {
				return nil, err
			}
		}
	}, func() { _ = db.Close() }}, nil
}

// mysqlTake makes one attempt. A deadlock (1213) of two attempts is a refusal.
func mysqlTake(ctx context.Context, db *sql.DB, key, owner string) (taken bool, err error) {
	result, err := db.ExecContext(ctx, `
		INSERT INTO peer_locks VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE
		owner   = IF(expires < UTC_TIMESTAMP(6), VALUES(owner), owner),
		expires = IF(owner = VALUES(owner), VALUES(expires), expires)`, key, owner, ttl.Microseconds())
	if refused := new(mysql.MySQLError); errors.As(err, &refused) && refused.Number == 1213 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	changed, err := result.RowsAffected() // 1: a new row; 2: one that has changed
	return changed > 0, err
}

// mysqlStatements returns how many statements the server has received from clients.
func mysqlStatements(ctx context.Context) (n float64, err error) {
	db, err := mysqlPool(ctx)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var name string
	err = db.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n)
	return n, err
}
