// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

// Own starts a PostgreSQL for one test, with the tables of lessons, and with settings of the server ("wal_writer_delay = '10s'").
func Own(t testing.TB, settings []string, lessons ...string) (*servertest.Server, *Database) {
	t.Helper()
	server, url := servertest.StartPostgres(t)
	d := &Database{T: t, URL: url, Pool: Pool(t, url)}
	for _, setting := range settings {
		d.Exec(`ALTER SYSTEM SET ` + setting)
	}
	d.Exec(`SELECT pg_reload_conf()`)
	err := d.Pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		Migrate(t, c.Conn(), lessons...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return server, d
}

// StandbyAway makes the commits of a server of its own wait for a standby that does not exist.
func (d *Database) StandbyAway() {
	d.synchronous(`ALTER SYSTEM SET synchronous_standby_names = 'absent'`, true)
}

// StandbyBack ends that.
func (d *Database) StandbyBack() {
	d.synchronous(`ALTER SYSTEM RESET synchronous_standby_names`, false)
}

// synchronous returns when commits wait, or when they do not.
func (d *Database) synchronous(sql string, waits bool) {
	d.T.Helper()
	d.Pool.Reset() // the server may have been restarted
	d.Exec(sql)
	d.Exec(`SELECT pg_reload_conf()`)
	locktest.Eventually(d.T, sql, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := d.Pool.Exec(ctx, `SELECT pg_logical_emit_message(true, 'pgtest', '')`)
		return waits == (err != nil)
	})
}
