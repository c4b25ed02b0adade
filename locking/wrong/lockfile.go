// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package wrong

import (
	"os"
	"syscall"
)

// LockFile is a lock on a file that is deleted when it is released.
type LockFile struct{ file *os.File }

// Open opens the file, and creates it if there is none.
func Open(path string) (LockFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	return LockFile{file}, err
}

// TryLock locks the file that was opened, whether or not it still has its name.
func (l LockFile) TryLock() (taken bool) {
	return syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// Unlock deletes the file, so that none is left, and releases the lock.
func (l LockFile) Unlock() error {
	err := os.Remove(l.file.Name())
	_ = l.file.Close()
	return err
}
