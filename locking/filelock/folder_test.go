// SPDX-License-Identifier: MIT

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"shop/locking"
	"shop/locking/locktest"
)

// A request returns when ctx ends, although the disk does not answer. What it takes later
// is released.
func TestAcquire_DiskDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, other := newStore(t, dir), newStore(t, dir)
		before := locktest.Taken(t, s, "k")
		locktest.Released(t, s, before)
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan struct{})
		s.sync = func(f *os.File) error {
			cancel()
			<-answer
			return f.Sync()
		}
		lease, err := s.TryAcquire(ctx, "k")
		if !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
			t.Errorf("got %+v and %v, want context.Canceled and ErrOutcomeUnknown", lease, err)
		}
		locktest.WantHeld(t, other, "k")
		close(answer)
		locktest.Eventually(t, "the key is free", func() bool {
			lease, err = other.TryAcquire(t.Context(), "k")
			return err == nil
		})
		if lease.Fence != before.Fence+2 {
			t.Errorf("fence %d, want %d: %d was written, and may have been read", lease.Fence, before.Fence+2, before.Fence+1)
		}
		locktest.Released(t, other, lease)
	})
}

// unwritable returns a folder in which nothing can be created. Permissions do not stop root.
func unwritable(t testing.TB) string {
	if os.Geteuid() == 0 {
		return "/sys"
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFolder_UnusableIsNotBusy(t *testing.T) {
	t.Parallel()
	deleted := filepath.Join(t.TempDir(), "deleted")
	gone := newStore(t, deleted)
	remove(t, deleted)
	for what, s := range map[string]*Store{"read-only": newStore(t, unwritable(t)), "deleted": gone} {
		lease, err := s.TryAcquire(t.Context(), "k")
		if err == nil || errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), "must be able to create") {
			t.Errorf("%s: got %+v and %v, want an error that says what the process needs", what, lease, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if s, err := New(dir); err == nil {
			t.Errorf("New(%q) made %+v", dir, s)
		}
	}
}

// A folder is the same one under each of its paths.
func TestFolder_HasSeveralPaths(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("folder", "link"); err != nil {
		t.Fatal(err)
	}
	relative, link := newStore(t, "folder"), newStore(t, "link")
	lease := locktest.Taken(t, relative, "k")
	locktest.WantHeld(t, link, "k")
	t.Chdir("folder")
	locktest.WantHeld(t, relative, "k")
	locktest.Released(t, relative, lease)
	locktest.Released(t, link, locktest.Taken(t, link, "k"))
}

// A release keeps the file, and nothing else is left in the folder.
func TestRelease_KeepsTheFile(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	locktest.Released(t, s, locktest.Taken(t, s, "k"))
	before, err := os.Stat(s.path("k"))
	if err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, s, locktest.Taken(t, s, "k"))
	after, err := os.Stat(s.path("k"))
	if err != nil || !os.SameFile(before, after) || after.Mode() != 0o600 {
		t.Errorf("another file, or another mode: %v", err)
	}
	if list, err := os.ReadDir(s.dir); len(list) != 1 || err != nil {
		t.Errorf("the folder has %v, %v", list, err)
	}
}

// The package documentation shows the name and the text of a file. Versions of a program,
// and operators, rely on them.
func TestFile_IsAsDocumented(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if name := filepath.Base(s.path("report/2026-11")); !strings.Contains(string(doc), "//\t"+name+"\n") {
		t.Errorf("doc.go does not show %s", name)
	}
	lease := locktest.Taken(t, s, "report/2026-11")
	defer locktest.Released(t, s, lease)
	text, err := os.ReadFile(s.path("report/2026-11"))
	if err != nil || string(text) != line(lease.Fence)+"\"report/2026-11\"\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if !strings.Contains(string(doc), "//\t"+line(1795256814078067)+"//\t\"report/2026-11\"\n") {
		t.Error("doc.go does not show the text of a file")
	}
}

// Two processes create the file of a key at once: both use that of the faster one.
func TestCreate_KeepsTheFileOfAFasterProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	slow, fast := newStore(t, dir), newStore(t, dir)
	var lease locking.Lease
	slow.sync = func(f *os.File) error {
		slow.sync = (*os.File).Sync
		lease = locktest.Taken(t, fast, "k")
		return f.Sync()
	}
	locktest.WantHeld(t, slow, "k")
	locktest.Released(t, fast, lease)
}

// A request that ctx ends within a moment of its answer returns the answer, and leaves
// nothing that is released later.
func TestAcquire_CtxEndsDuringTheSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, other := newStore(t, dir), newStore(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		s.sync = func(f *os.File) error {
			cancel()
			return f.Sync()
		}
		lease, err := s.TryAcquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		locktest.WantHeld(t, other, "k")
		locktest.Released(t, s, lease)
		locktest.Released(t, other, locktest.Taken(t, other, "k"))
	})
}

// A request whose ctx has ended does nothing at all, so its outcome is known.
func TestAcquire_EndedCtxTouchesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if lease, err := s.TryAcquire(ctx, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %+v and %v, want context.Canceled alone", lease, err)
	}
}
