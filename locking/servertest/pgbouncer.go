// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// StartPooler starts a PgBouncer in transaction mode for one test, with two sessions of the server, and
// returns the URL through it. It uses the session that became free last. Each session begins in the
// search_path of the URL. Settings are lines of pgbouncer.ini.
func StartPooler(t testing.TB, server string, settings ...string) (through string) {
	t.Helper()
	binary := cmp.Or(os.Getenv("SHOP_PGBOUNCER_SERVER"), "pgbouncer")
	if _, err := exec.LookPath(binary); err != nil {
		binary = "/usr/sbin/pgbouncer" // not on every user's PATH
	}
	if _, err := exec.LookPath(binary); err != nil {
		t.Fatalf("this test starts PgBouncer: install pgbouncer (make ready), or set SHOP_PGBOUNCER_SERVER to its path: %v", err)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	query := u.Query()
	path := query.Get("search_path")
	query.Del("search_path")
	s := NewServer(t, Program{
		Name: binary, User: systemUser(t, "postgres"),
		Args: func(s *Server) []string { return []string{filepath.Join(s.Dir, "pgbouncer.ini")} },
		Ready: func(ctx context.Context, _ *Server) error {
			conn, err := pgx.Connect(ctx, through)
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		},
	})
	_, port, _ := net.SplitHostPort(s.Addr)
	lines := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, u.Hostname(), u.Port(), u.User.Username(), password, cmp.Or(path, "public"), port) + strings.Join(settings, "\n") + "\n"
	file := filepath.Join(s.Dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	s.giveToUser(s.Dir, file)
	u.Host, u.RawQuery = s.Addr, query.Encode()
	through = u.String()
	s.Start()
	return through
}
