// SPDX-License-Identifier: MIT

package daemon

import (
	"fmt"
	"os"
	osuser "os/user"
	"strconv"
	"strings"
	"syscall"
)

// serverUser picks the first existing user of names if this process runs as root, otherwise nil: a server
// that can run programs or write files for its clients must not run as root.
func serverUser(names []string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 || len(names) == 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("running as root, and none of the users %s exists to run the server as: "+
		"create one (useradd --system %s), or run as a normal user",
		strings.Join(names, ", "), names[0])
}

// own gives a path to the server's user.
func (i *Instance) own(path string) error {
	if i.user == nil {
		return nil
	}
	return os.Chown(path, int(i.user.Uid), int(i.user.Gid))
}
