// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package wrong

import (
	"path/filepath"
	"testing"
)

// A holds the lock, and B has opened the file. A releases: B locks the file that A has
// deleted, and C a new one.
func TestLockFile_DeletedOnReleaseLetsTwoIn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() LockFile {
		l, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a := open()
	if !a.TryLock() {
		t.Fatal("A did not get the lock")
	}
	b := open()
	if b.TryLock() {
		t.Fatal("B got the lock of A")
	}
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	if !b.TryLock() {
		t.Fatal("B did not get the lock that A released")
	}
	c := open()
	if !c.TryLock() {
		t.Error("C did not get the lock of B")
	}
	for _, l := range []LockFile{b, c} {
		_ = l.file.Close()
	}
}
