// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartMariaDB starts a MariaDB for one test, or for one package (see WithServer), and returns
// its DSN, without a database. ready connects to the DSN.
func StartMariaDB(t testing.TB, ready func(ctx context.Context, dsn string) error) (s *Server, dsn string) {
	t.Helper()
	binary, err := exec.LookPath(cmp.Or(os.Getenv("SHOP_MARIADBD_SERVER"), "mariadbd"))
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/mariadbd") // not on the PATH of every user
	}
	if err == nil {
		binary, err = filepath.EvalSymlinks(binary) // its SQL files are beside it
	}
	if err != nil {
		t.Fatalf("this test starts a server of its own: install mariadb-server-core, or set SHOP_MARIADBD_SERVER to the path of mariadbd: %v", err)
	}
	s = NewServer(t, Program{
		Name: binary, User: systemUser(t, "mysql"),
		Args: func(s *Server) []string {
			_, port, _ := net.SplitHostPort(s.Addr)
			return append(mariadbArgs(s), "--port="+port, "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=1000")
		},
		Ready: func(ctx context.Context, _ *Server) error { return ready(ctx, dsn) },
	})
	dsn = fmt.Sprintf("test:%s@tcp(%s)/", s.initMariaDB(binary), s.Addr)
	s.Start()
	return s, dsn
}

// mariadbArgs are the arguments of a server that starts fast. The kernel keeps what a killed process has
// written, so nothing is flushed to the disk.
func mariadbArgs(s *Server) []string {
	return []string{
		"--no-defaults", "--datadir=" + s.Dir, "--tmpdir=" + s.Dir,
		"--socket=socket", "--pid-file=pid", // in the folder: the path of a socket is limited to 107 bytes
		"--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
		"--innodb-flush-method=nosync", "--innodb-doublewrite=0", "--innodb-use-native-aio=0",
		"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M", "--innodb-log-buffer-size=2M",
	}
}

// initMariaDB makes the system tables and the user test, and returns its password. It does what
// mariadb-install-db does, which needs a further package, without help and test data.
func (s *Server) initMariaDB(binary string) string {
	s.t.Helper()
	tables := s.systemTables(filepath.Dir(filepath.Dir(binary)))
	defer tables.Close()
	s.giveToUser(s.Dir)
	password := rand.Text()
	install := exec.Command(binary, append(mariadbArgs(s), "--bootstrap")...)
	install.Dir, install.SysProcAttr = s.Dir, &syscall.SysProcAttr{Credential: s.program.User}
	install.Stdin = io.MultiReader(
		strings.NewReader("CREATE DATABASE mysql;\nUSE mysql;\n"), tables,
		strings.NewReader("\nFLUSH PRIVILEGES;\nCREATE USER test@'%' IDENTIFIED BY '"+password+"';\nGRANT ALL ON *.* TO test@'%';\n"))
	if out, err := install.CombinedOutput(); err != nil {
		s.t.Fatalf("mariadbd --bootstrap: %v\n%s", err, out)
	}
	return password
}

// systemTables opens the SQL file of the system tables, whose name and folder depend on the version.
func (s *Server) systemTables(prefix string) *os.File {
	s.t.Helper()
	pattern := filepath.Join(prefix, "share", "m*", "m*_system_tables.sql")
	found, _ := filepath.Glob(pattern)
	if len(found) == 0 {
		s.t.Fatalf("there is no %s", pattern)
	}
	file, err := os.Open(found[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return file
}
