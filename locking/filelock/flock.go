// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"shop/locking"
)

const supported = true

// flock locks f without waiting.
func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return locking.ErrBusy
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("flock %s, which must be on a local file system that supports it: %w", f.Name(), err)
		}
	}
}

// unlock unlocks f and closes it. To close it is not enough: a copy of the descriptor,
// as a child process has it between fork and exec, would keep the lock.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}
