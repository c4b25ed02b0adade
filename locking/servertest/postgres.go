// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartPostgres starts a PostgreSQL for one test, and returns its URL. ready connects to the
// URL. Kill ends the server without a checkpoint, so that its next start recovers from the log.
func StartPostgres(t testing.TB, ready func(ctx context.Context, url string) error) (s *Server, url string) {
	t.Helper()
	binary, err := exec.LookPath(cmp.Or(os.Getenv("SHOP_POSTGRES_SERVER"), "postgres"))
	if err == nil {
		binary, err = filepath.EvalSymlinks(binary) // initdb is beside it
	}
	if err != nil {
		t.Fatalf("this test starts a server of its own: install PostgreSQL, or set SHOP_POSTGRES_SERVER to the path of postgres: %v", err)
	}
	s = NewServer(t, Program{
		Name: binary, User: systemUser(t, "postgres"),
		Signal: "QUIT", // ends all its processes, and removes its shared memory
		Args: func(s *Server) []string {
			_, port, _ := net.SplitHostPort(s.Addr)
			return []string{
				"-D", filepath.Join(s.Dir, "pg"), "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
				"-c", "max_connections=250", "-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap",
				"-c", "fsync=off", // the kernel keeps what a killed process has written
			}
		},
		Ready: func(ctx context.Context, _ *Server) error { return ready(ctx, url) },
	})
	url = fmt.Sprintf("postgres://test:%s@%s/postgres?sslmode=disable", s.initPostgres(filepath.Dir(binary)), s.Addr)
	s.Start()
	return s, url
}

// StartStandby starts a standby of primary, which is restarted for that, and returns its URL. As the primary writes its
// log, the standby gets it: the name in synchronous_standby_names is standby. Both have one password.
func StartStandby(t testing.TB, primary *Server, primaryURL string, ready func(ctx context.Context, url string) error) (s *Server, url string) {
	t.Helper()
	program := primary.program
	program.Ready = func(ctx context.Context, s *Server) error { return ready(ctx, url) }
	s = NewServer(t, program)
	url = strings.Replace(primaryURL, primary.Addr, s.Addr, 1)
	primary.Kill()
	data := filepath.Join(s.Dir, "pg")
	if out, err := exec.Command("cp", "-a", filepath.Join(primary.Dir, "pg"), data).CombinedOutput(); err != nil {
		t.Fatalf("copy the primary: %v\n%s", err, out)
	}
	signal := filepath.Join(data, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.giveToUser(s.Dir, signal)
	primary.Start()
	s.Flags = []string{"-c", "primary_conninfo=" + primaryURL + "&application_name=standby"}
	s.Start()
	return s, url
}

// initPostgres makes the data, and returns the password.
func (s *Server) initPostgres(programs string) string {
	s.t.Helper()
	secret, password := filepath.Join(s.Dir, "password"), rand.Text()
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.giveToUser(s.Dir, secret)
	initdb := exec.Command(filepath.Join(programs, "initdb"), "-D", filepath.Join(s.Dir, "pg"), "-U", "test", "--pwfile", secret,
		"-A", "md5", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = s.Dir, &syscall.SysProcAttr{Credential: s.program.User}
	if out, err := initdb.CombinedOutput(); err != nil {
		s.t.Fatalf("initdb: %v\n%s", err, out)
	}
	return password
}
