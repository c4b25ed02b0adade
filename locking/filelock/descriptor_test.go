// SPDX-License-Identifier: MIT

package filelock

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"shop/locking"
	"shop/locking/locktest"
)

// files returns the open files of a lease.
func files(t testing.TB, s *Store, l locking.Lease) []*os.File {
	t.Helper()
	h, found := holds.Load(grant{s, l.Owner})
	if !found {
		t.Fatalf("%+v is not held", l)
	}
	return h.(*hold).files
}

// A copy of the descriptor keeps the lock after the end of the holder, but not after Release.
func TestDescriptor_Copied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, other := newStore(t, dir), newStore(t, dir)
	duplicate := func(l locking.Lease) *os.File {
		syscall.ForkLock.RLock() // or a process that another test starts has a copy too
		fd, err := syscall.Dup(int(files(t, s, l)[0].Fd()))
		if err == nil {
			syscall.CloseOnExec(fd)
		}
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "copy")
	}
	released := locktest.Taken(t, s, "k")
	c := duplicate(released)
	defer c.Close()
	locktest.Released(t, s, released)
	locktest.Released(t, other, locktest.Taken(t, other, "k"))

	crashed := locktest.Taken(t, s, "k")
	c = duplicate(crashed)
	_ = files(t, s, crashed)[0].Close() // as the kernel does
	locktest.WantHeld(t, other, "k")
	_ = c.Close()
	locktest.Released(t, other, locktest.Taken(t, other, "k"))
	wantLost(t, s, crashed)
}

func TestDescriptor_Closed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, other := newStore(t, dir), newStore(t, dir)
	lease := locktest.Taken(t, s, "k")
	_ = files(t, s, lease)[0].Close()
	var second locking.Lease // two holders, until Renew. A process that another test starts has a copy until its exec
	locktest.Eventually(t, "the key is free", func() bool {
		var err error
		second, err = other.TryAcquire(t.Context(), "k")
		return err == nil
	})
	wantLost(t, s, lease)
	locktest.WantHeld(t, s, "k")
	locktest.Released(t, other, second)
}

// The garbage collector closes the files of objects that are no longer reachable. It must
// not free the keys of a Store that way.
func TestStore_CollectedKeepsItsKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var owner string
	func() { owner = locktest.Taken(t, newStore(t, dir), "k").Owner }()
	for range 3 {
		runtime.GC()
		locktest.WantHeld(t, newStore(t, dir), "k")
	}
	holds.Range(func(key, h any) bool {
		if key.(grant).owner == owner {
			h.(*hold).free()
			holds.Delete(key)
		}
		return true
	})
}

// A failing flock is not a holder.
func TestFlock_FailureIsNotBusy(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	s.lock = func(f *os.File) error {
		_ = f.Close() // flock fails with EBADF, as on some network file systems
		return flock(f)
	}
	lease, err := s.TryAcquire(t.Context(), "k")
	if !errors.Is(err, syscall.EBADF) || errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "local file system") {
		t.Errorf("got %+v and %v, want EBADF, and what to do", lease, err)
	}
	s.lock = flock
	locktest.Released(t, s, locktest.Taken(t, s, "k"))
}
