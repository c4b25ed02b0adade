// SPDX-License-Identifier: MIT

package servertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shop/locking/servertest/daemon"
)

// StartMariaDB starts a MariaDB for one test, or for one package (see WithServer), and returns
// its DSN, without a database. ready connects to the DSN.
func StartMariaDB(t testing.TB, ready func(ctx context.Context, dsn string) error) (s *Server, dsn string) {
	t.Helper()
	s = Start(t, daemon.Kind{
		Name: "mariadbd", File: "mariadbd", Users: []string{"mysql", "nobody"}, Setup: initMariaDB,
		Argv: func(i *daemon.Instance) []string {
			port := "--port=" + strconv.Itoa(i.Ports[0])
			return append(mariadbArgs(i), port, "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=1000")
		},
		Ready: func(ctx context.Context, i *daemon.Instance) error { return ready(ctx, i.URL()) },
		URL:   func(i *daemon.Instance) string { return fmt.Sprintf("test:%s@tcp(%s)/", i.Secret, i.Addr()) },
	})
	return s, s.URL
}

// mariadbArgs are the arguments of a server that starts fast. The kernel keeps what a killed process has
// written, so nothing is flushed to the disk.
func mariadbArgs(i *daemon.Instance) []string {
	return []string{
		"--no-defaults", "--datadir=" + i.Dir, "--tmpdir=" + i.Dir,
		"--socket=socket", "--pid-file=pid", // in the folder: the path of a socket is limited to 107 bytes
		"--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
		"--innodb-flush-method=nosync", "--innodb-doublewrite=0", "--innodb-use-native-aio=0",
		"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M", "--innodb-log-buffer-size=2M",
	}
}

// initMariaDB makes the system tables and the user test. It does what mariadb-install-db does, which needs a
// further package, without help and test data.
func initMariaDB(ctx context.Context, i *daemon.Instance) error {
	tables, err := systemTables(i.Program)
	if err != nil {
		return err
	}
	defer tables.Close()
	install := i.Command(ctx, nil, i.Program, append(mariadbArgs(i), "--bootstrap")...)
	install.Stdin = io.MultiReader(
		strings.NewReader("CREATE DATABASE mysql;\nUSE mysql;\n"), tables,
		strings.NewReader("\nFLUSH PRIVILEGES;\nCREATE USER test@'%' IDENTIFIED BY '"+i.Secret+"';\nGRANT ALL ON *.* TO test@'%';\n"))
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadbd --bootstrap: %w\n%s", err, out)
	}
	return nil
}

// systemTables opens the SQL file of the system tables, whose name and folder depend on the version.
func systemTables(program string) (*os.File, error) {
	pattern := filepath.Join(filepath.Dir(filepath.Dir(daemon.RealPath(program))), "share", "m*", "m*_system_tables.sql")
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no %s", pattern)
	}
	return os.Open(found[0])
}
