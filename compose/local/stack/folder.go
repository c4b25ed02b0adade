// SPDX-License-Identifier: MIT

package stack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The prefixes of folder names. The prefix says whether a stack is detached.
const (
	folderPrefix   = "shop-stack-"
	detachedPrefix = folderPrefix + "up-"
)

// newFolder makes a stack's folder and takes its lock. A held lock means that the
// supervisor is alive: the kernel releases the lock however the supervisor ends, so
// no pid has to be trusted.
func newFolder(prefix string) (dir string, lock *os.File, err error) {
	dir, err = os.MkdirTemp(base(), prefix)
	if err != nil {
		return "", nil, err
	}
	// Servers that run as another user must be able to reach their own folders.
	if err = os.Chmod(dir, 0o711); err == nil {
		lock, err = tryLock(lockOf(dir))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

// tryLock takes the lock on a file or fails at once.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// base returns the parent of all stack folders: the system's folder for temporary files, or
// /tmp. It returns /tmp if the path is too long for a socket's name (macOS allows 104 bytes).
// It also does so if the stack runs as root, and the users of the servers cannot reach the folder.
func base() string {
	const longest = 70
	dir := os.TempDir()
	if len(dir) > longest || (os.Geteuid() == 0 && !reachable(dir)) {
		return "/tmp"
	}
	return dir
}

func reachable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// Dirs lists the folders of this user's running stacks.
func Dirs() []string {
	var running []string
	for _, dir := range folders() {
		if lock, ok := orphan(dir); ok {
			lock.Close()
		} else if _, err := os.Stat(socketOf(dir)); err == nil {
			running = append(running, dir)
		}
	}
	return running
}

// Detached reports whether the stack in dir outlives the process that opened it.
func Detached(dir string) bool { return strings.HasPrefix(filepath.Base(dir), detachedPrefix) }

// Sweep removes the remains of this user's stacks whose supervisor and reaper were
// both killed: the kernel ended their servers, but their folders remain.
func Sweep() {
	for _, dir := range folders() {
		if lock, ok := orphan(dir); ok {
			_ = reap(dir)
			lock.Close()
		}
	}
}

// orphan takes the lock of a folder whose supervisor is dead. It skips a folder
// younger than two seconds: newFolder may not have taken its lock yet.
func orphan(dir string) (*os.File, bool) {
	info, err := os.Stat(dir)
	if err != nil || time.Since(info.ModTime()) < 2*time.Second {
		return nil, false
	}
	lock, err := tryLock(lockOf(dir))
	return lock, err == nil
}

// folders lists the folders of stacks that belong to this user.
func folders() []string {
	found, _ := filepath.Glob(filepath.Join(base(), folderPrefix+"*"))
	var own []string
	for _, dir := range found {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Getuid() {
			own = append(own, dir)
		}
	}
	return own
}
