package stack

import (
	"fmt"
	"syscall"
)

// manyFiles is as many open files as any server here makes use of.
const manyFiles = 64_000

// allowFiles lets the servers open as many files as the hard limit allows. The
// soft limit is 1,024 on most systems: enough for a shell. Go raises its own, but
// gives a child the one that it was born with, unless it is set explicitly.
func allowFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, manyFiles)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// checkFiles tells whether a server of this kind can open as many files as it needs.
func (k *kind) checkFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max >= k.files {
		return nil
	}
	return fmt.Errorf("%s needs %d open files, and the hard limit is %d (ulimit -Hn)\n"+
		"  what to do: raise it to %[2]d or more: `* hard nofile %[4]d` in /etc/security/limits.conf and a new login, LimitNOFILE=%[4]d in a systemd unit, --ulimit nofile=%[4]d for docker run\n"+
		"  or set %[5]s to a server that runs", k.name, k.files, limit.Max, manyFiles, k.variable)
}
