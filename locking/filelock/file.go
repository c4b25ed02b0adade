// SPDX-License-Identifier: MIT

package filelock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"shop/locking"
)

// ErrDamaged reports a lock file without a valid fence: it was emptied, torn or written by
// another program. Its text has the command that sets a fence above all earlier ones.
// A damaged file is never taken for a new one, because its fences would start again.
var ErrDamaged = errors.New("filelock: the lock file is damaged")

// path returns the file of key. Never change it: versions of a program with different
// names would not exclude each other.
func (s *Store) path(key string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%x.lock", sha256.Sum256([]byte(key))))
}

// replacedMax is how often open follows a path that names another file after each lock.
const replacedMax = 10

// open returns the locked file of key.
//
// Between open and flock the file may lose its name to another one, which another process
// may hold. So the path is compared after the lock, and opened again if it has changed.
func (s *Store) open(key string) (*os.File, error) {
	path := s.path(key)
	for range replacedMax {
		f, err := os.OpenFile(path, os.O_RDWR, 0) // for writing: NFS requires it for LOCK_EX
		if errors.Is(err, fs.ErrNotExist) {
			if err = s.create(path, key); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the process must be able to create, read and write files in the folder: %w", err)
		}
		current := false
		if err = s.lock(f); err == nil {
			current, err = isCurrent(f)
		}
		if current {
			return f, nil
		}
		unlock(f)
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s was deleted or replaced %d times during the request", path, replacedMax)
}

// create makes the file of key, complete and synced, unless another process is faster.
// os.Link, unlike os.Rename, does not replace the file of that process.
func (s *Store) create(path, key string) error {
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	start := locking.Fence(max(0, time.Now().UnixMicro()))
	if _, err := io.WriteString(f, line(start)+strconv.Quote(key)+"\n"); err != nil {
		return err
	}
	if err := s.sync(f); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	folder, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return s.sync(folder)
}

// isCurrent reports whether the path of f still names f.
func isCurrent(f *os.File) (bool, error) {
	locked, err := f.Stat()
	if err != nil {
		return false, nil // the descriptor was closed
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, named), err
}

// lineSize is the size of the first line of a file.
const lineSize = 40

// line returns the first line: the fence, twice, at a fixed width. A line that was
// overwritten in part is equal to the old line or the new one, or has two different numbers.
func line(fence locking.Fence) string { return fmt.Sprintf("%019[1]d %019[1]d\n", fence) }

func readFence(f *os.File) (locking.Fence, error) {
	buffer := make([]byte, lineSize)
	n, err := f.ReadAt(buffer, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	text := string(buffer[:n])
	first, _, _ := strings.Cut(text, " ")
	fence, err := strconv.ParseInt(first, 10, 64)
	if err != nil || fence < 0 || fence == math.MaxInt64 || text != line(locking.Fence(fence)) {
		return 0, fmt.Errorf("%w: it begins with %q: set a fence above all earlier ones with the command\n%s", ErrDamaged, text, repair(f.Name()))
	}
	return locking.Fence(fence), nil
}

// repair returns a shell command that writes the wall clock, rounded up to a second, as
// the fence of the file. The file stays the same one, so a lock on it stays valid.
func repair(path string) string {
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	return `n=$(($(date +%s)+1))000000; printf '%019d %019d\n' $n $n > ` + quoted
}

func (s *Store) writeFence(f *os.File, fence locking.Fence) error {
	if _, err := f.WriteAt([]byte(line(fence)), 0); err != nil {
		return err
	}
	return s.sync(f)
}

// hold is the locked files of a lease, in the order of its keys.
type hold struct {
	files []*os.File
	lost  atomic.Bool
}

// check returns locking.ErrLost if a file lost its name or its descriptor was closed, now
// or in an earlier check: a file that was moved away and back may have been held meanwhile.
func (h *hold) check() error {
	for _, f := range h.files {
		current, err := isCurrent(f)
		if err != nil {
			return err
		}
		if !current {
			h.lost.Store(true)
		}
	}
	if h.lost.Load() {
		return locking.ErrLost
	}
	return nil
}

func (h *hold) free() {
	for _, f := range h.files {
		unlock(f)
	}
}
