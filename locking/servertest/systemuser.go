// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// systemUser is the user of a server that refuses to run as root, if the test runs as root: the one with
// this name, or nobody. Otherwise it is nil.
func systemUser(t testing.TB, name string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	user, err := osuser.Lookup(name)
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

// giveToUser makes paths in the server's folder those of its user, who can then enter it.
func (s *Server) giveToUser(paths ...string) {
	s.t.Helper()
	user := s.program.User
	if user == nil {
		return
	}
	above := filepath.Dir(s.Dir) // that of t.TempDir, and the one around it, are closed to other users
	err := cmp.Or(os.Chmod(above, 0o711), os.Chmod(filepath.Dir(above), 0o711))
	for _, path := range paths {
		err = cmp.Or(err, os.Chown(path, int(user.Uid), int(user.Gid)))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
