package locktest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
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
		Name: binary, User: postgresUser(t),
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

// initPostgres makes the data, and returns the password.
func (s *Server) initPostgres(programs string) string {
	s.t.Helper()
	secret, password := filepath.Join(s.Dir, "password"), rand.Text()
	err := os.WriteFile(secret, []byte(password), 0o600)
	if user := s.program.User; user != nil {
		for _, path := range []string{s.Dir, secret} {
			err = cmp.Or(err, os.Chown(path, int(user.Uid), int(user.Gid)))
		}
		above := filepath.Dir(s.Dir) // that of t.TempDir, and the one around it, are closed to other users
		err = cmp.Or(err, os.Chmod(above, 0o711), os.Chmod(filepath.Dir(above), 0o711))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	initdb := exec.Command(filepath.Join(programs, "initdb"), "-D", filepath.Join(s.Dir, "pg"), "-U", "test", "--pwfile", secret,
		"-A", "md5", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = s.Dir, &syscall.SysProcAttr{Credential: s.program.User}
	if out, err := initdb.CombinedOutput(); err != nil {
		s.t.Fatalf("initdb: %v\n%s", err, out)
	}
	return password
}

// postgresUser is a system user if the test runs as root: PostgreSQL refuses to run as root.
func postgresUser(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	user, err := osuser.Lookup("postgres")
	if err != nil {
		user, err = osuser.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(user.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(user.Gid, 10, 32)
	if err := cmp.Or(err, err2); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
