// SPDX-License-Identifier: MIT

package stack

import (
	"fmt"
	"os"
	osuser "os/user"
	"strconv"
	"strings"
	"syscall"
)

// user is the user that a server runs as; nil means the user of this process.
type user struct{ uid, gid int }

// serverUser picks the first existing user of names if this process runs as root: a server
// that can run programs or write files for its clients must not run as root.
func serverUser(names []string) (*user, error) {
	if os.Geteuid() != 0 || len(names) == 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil {
			return &user{uid: uid, gid: gid}, nil
		}
	}
	return nil, fmt.Errorf("stack: running as root, and none of the users %s exists to run the server as: create one (useradd --system %s), or run as a normal user",
		strings.Join(names, ", "), names[0])
}

func (u *user) own(path string) error {
	if u == nil {
		return nil
	}
	return os.Chown(path, u.uid, u.gid)
}

func (u *user) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
}
