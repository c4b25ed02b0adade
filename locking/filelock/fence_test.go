// SPDX-License-Identifier: MIT

package filelock

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shop/locking"
	"shop/locking/locktest"
)

func TestFence_GrowsByOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last locking.Fence
	for range 5 {
		s := newStore(t, dir)
		lease := locktest.Taken(t, s, "k")
		if last != 0 && lease.Fence != last+1 {
			t.Errorf("fence %d after %d", lease.Fence, last)
		}
		last = lease.Fence
		locktest.Released(t, s, lease)
	}
}

// Each fence is in its file, and synced, before it is granted. The first one also syncs
// the file's entry in the folder.
func TestFence_IsSyncedBeforeTheGrant(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	var synced []string // what each sync finds in the file; a folder: its name
	s.sync = func(f *os.File) error {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			text = []byte(f.Name())
		}
		synced = append(synced, string(text))
		return f.Sync()
	}
	first := locktest.Taken(t, s, "k")
	rest := "\"k\"\n"
	want := []string{line(first.Fence-1) + rest, s.dir, line(first.Fence) + rest}
	if strings.Join(synced, "|") != strings.Join(want, "|") {
		t.Errorf("the first grant synced %q, want %q", synced, want)
	}
	locktest.Released(t, s, first)
	synced = nil
	second := locktest.Taken(t, s, "k")
	if len(synced) != 1 || synced[0] != line(second.Fence)+rest {
		t.Errorf("the second grant synced %q, want %q", synced, line(second.Fence)+rest)
	}
	locktest.Released(t, s, second)
}

// A fence that does not reach the disk is not granted, and not granted later either.
func TestFence_NotSyncedIsNotGranted(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	before := locktest.Taken(t, s, "b")
	locktest.Released(t, s, before)
	healthy := s.sync
	for _, keys := range [][]string{{"b"}, {"a", "b"}, {"new"}} {
		s.sync = func(*os.File) error { return syscall.EIO }
		lease, err := s.TryAcquire(t.Context(), keys...)
		if !errors.Is(err, syscall.EIO) || errors.Is(err, locking.ErrBusy) || lease.Fence != 0 {
			t.Errorf("%q: got %+v and %v, want EIO", keys, lease, err)
		}
		s.sync = healthy
		lease = locktest.Taken(t, s, keys...)
		locktest.Released(t, s, lease)
	}
	if after := locktest.Taken(t, s, "b"); after.Fence <= before.Fence+2 {
		t.Errorf("fence %d, but %d and %d may be on the disk", after.Fence, before.Fence+1, before.Fence+2)
	}
}

// A write that is cut short at any byte leaves the old fence, the new one, or damage.
func TestFence_TornWritesAreNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	for _, old := range []locking.Fence{0, 9, 99, 1795256814078067, 1795256814099999, math.MaxInt64 - 2} {
		for cut := range lineSize + 1 {
			write(t, path, line(old + 1)[:cut]+line(old)[cut:])
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readFence(f)
			if err == nil && got != old && got != old+1 || err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("%d overwritten up to byte %d: got %d, %v", old, cut, got, err)
			}
			_ = f.Close()
		}
	}
}

// A damaged file is an error, not a new file. The command in the error sets a greater fence.
func TestFence_DamageIsReportedAndRepaired(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"empty": "", "half": line(42)[:20], "two numbers": line(42)[:20] + line(43)[20:], "no end of line": line(42)[:39] + " ",
		"other numbers": "42 42\n", "text": strings.Repeat("x", 100), "NUL": strings.Repeat("\x00", 100),
		"negative": line(-42), "the greatest": line(math.MaxInt64), "too great": strings.Repeat("9", 19) + " " + strings.Repeat("9", 19) + "\n",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, filepath.Join(t.TempDir(), "it's $HOME"))
			before := locktest.Taken(t, s, "k")
			locktest.Released(t, s, before)
			write(t, s.path("k"), text)

			lease, err := s.TryAcquire(t.Context(), "a", "k")
			if !errors.Is(err, ErrDamaged) || errors.Is(err, locking.ErrBusy) {
				t.Fatalf("got %+v and %v, want ErrDamaged", lease, err)
			}
			if now, _ := os.ReadFile(s.path("k")); string(now) != text {
				t.Errorf("the file was changed to %q", now)
			}
			locktest.Released(t, s, locktest.Taken(t, s, "a"))

			command := err.Error()[strings.LastIndex(err.Error(), "\n"):]
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
			if after := locktest.Taken(t, s, "k"); after.Fence <= before.Fence {
				t.Errorf("fence %d after the repair, %d before the damage", after.Fence, before.Fence)
			}
		})
	}
}
