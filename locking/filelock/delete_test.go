// SPDX-License-Identifier: MIT

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

// wantLost checks that both Renew and Release return ErrLost.
func wantLost(t testing.TB, s *Store, l locking.Lease) {
	t.Helper()
	if _, err := s.Renew(t.Context(), l); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	if err := s.Release(t.Context(), l); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: got %v, want ErrLost", err)
	}
}

// The known limit: when an operator deletes the file of a held key, the next request gets
// the key too. The first holder's Renew detects that, and a guard refuses its fence.
func TestDelete_LetsASecondHolderIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	first := locktest.Taken(t, a, "k", "other")
	remove(t, a.path("k"))
	second := locktest.Taken(t, b, "k")
	if second.Fence <= first.Fence {
		t.Errorf("the second holder has the fence %d, the first one %d", second.Fence, first.Fence)
	}
	locktest.WantHeld(t, b, "other")
	wantLost(t, a, first)
	locktest.Released(t, b, second)
	locktest.Released(t, b, locktest.Taken(t, b, "k", "other"))
}

// Do detects the deletion with its next renewal.
func TestDelete_EndsTheCtxOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, t.TempDir())
		start := time.Now()
		err := locking.Do(t.Context(), s, locking.Options{}, []string{"k"}, func(ctx context.Context, _ locking.Lease) error {
			remove(t, s.path("k"))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if took := time.Since(start); !errors.Is(err, locking.ErrLost) || took > time.Second {
			t.Errorf("after %v: %v, want ErrLost after 1 s", took, err)
		}
	})
}

// The file is deleted between open and flock, and another process has locked a new one.
func TestDelete_DuringARequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b, c := newStore(t, dir), newStore(t, dir), newStore(t, dir)
	first := locktest.Taken(t, a, "k")
	var third locking.Lease
	b.lock = func(f *os.File) error {
		b.lock = flock
		remove(t, f.Name())
		if err := a.Release(t.Context(), first); !errors.Is(err, locking.ErrLost) {
			t.Errorf("release: got %v, want ErrLost", err)
		}
		third = locktest.Taken(t, c, "k")
		return flock(f)
	}
	locktest.WantHeld(t, b, "k")
	locktest.Released(t, c, third)
	locktest.Released(t, b, locktest.Taken(t, b, "k"))
}

// A file that never keeps its name is an error, not a holder.
func TestDelete_DuringEachAttempt(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	s.lock = func(f *os.File) error {
		remove(t, f.Name())
		return flock(f)
	}
	if lease, err := s.TryAcquire(t.Context(), "k"); err == nil || errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %+v and %v, want an error that is not ErrBusy", lease, err)
	}
}

// A file that was moved away and back may have been held meanwhile, under another name.
func TestRename_AwayAndBackStaysLost(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	lease := locktest.Taken(t, s, "k")
	away := filepath.Join(s.dir, "away")
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(s.path("k"), away)
	if _, err := s.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	move(away, s.path("k"))
	locktest.WantHeld(t, s, "k") // until Release
	wantLost(t, s, lease)
	locktest.Released(t, s, locktest.Taken(t, s, "k"))
}

// The limit of a fence from the clock: a new file starts below the fences of a deleted
// one when the clock was set back.
func TestDelete_AfterTheClockWasSetBack(t *testing.T) {
	s := newStore(t, t.TempDir())
	before := locktest.Taken(t, s, "k")
	locktest.Released(t, s, before)
	remove(t, s.path("k"))
	synctest.Test(t, func(t *testing.T) { // its clock starts in the year 2000
		after := locktest.Taken(t, s, "k")
		locktest.Released(t, s, after)
		if after.Fence >= before.Fence {
			t.Errorf("fence %d after the clock was set back, %d before", after.Fence, before.Fence)
		}
	})
}
