// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"shop/locking/servertest/daemon"
)

// StartPooler starts a PgBouncer in transaction mode for one test, with two sessions of the server, and
// returns the URL through it. It uses the session that became free last. Each session begins in the
// search_path of the URL. Settings are lines of pgbouncer.ini.
func StartPooler(t testing.TB, server string, settings ...string) (through string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	host, port, query := u.Hostname(), u.Port(), u.Query()
	path := cmp.Or(query.Get("search_path"), "public")
	query.Del("search_path")
	u.RawQuery = query.Encode()
	password, _ := u.User.Password()
	file := func(i *daemon.Instance) string { return filepath.Join(i.Dir, "pgbouncer.ini") }
	return Start(t, daemon.Kind{
		Name: "pgbouncer", File: "pgbouncer", Users: []string{"postgres", "nobody"},
		Setup: func(_ context.Context, i *daemon.Instance) error {
			return i.Write(file(i), fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, host, port, u.User.Username(), password, path, i.Ports[0])+strings.Join(settings, "\n")+"\n")
		},
		Argv: func(i *daemon.Instance) []string { return []string{file(i)} },
		URL: func(i *daemon.Instance) string {
			u.Host = i.Addr()
			return u.String()
		},
		Ready: func(ctx context.Context, i *daemon.Instance) error {
			conn, err := pgx.Connect(ctx, i.URL())
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		},
	}).URL
}
