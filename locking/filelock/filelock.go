// SPDX-License-Identifier: MIT

package filelock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"shop/locking"
	"shop/locking/driver"
)

var _ locking.Store = (*Store)(nil)

// Store keeps locks in a folder. It is safe for concurrent use, and has nothing to close:
// what it holds is freed by Release, or when the process ends.
type Store struct {
	dir  string
	lock func(*os.File) error // flock; tests replace it
	sync func(*os.File) error // (*os.File).Sync; tests replace it
}

// New makes a Store in the folder dir, which must hold nothing else. It creates the
// folder if there is none. Stores exclude each other only if they use the same folder on
// the same machine. The error matches errors.ErrUnsupported on a system without flock(2).
func New(dir string) (*Store, error) {
	if !supported {
		return nil, fmt.Errorf("filelock: no flock(2) on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	if dir == "" {
		return nil, errors.New("filelock: no folder")
	}
	dir, err := filepath.Abs(dir) // a later os.Chdir must not change it
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("filelock: %w", err)
	}
	return &Store{dir: dir, lock: flock, sync: (*os.File).Sync}, nil
}

// holds are the leases of all Stores of this process: *hold by grant. A Store does not
// keep its own leases, because the garbage collector closes the files of a Store that
// the program no longer refers to, and that would free its keys.
var holds sync.Map

type grant struct {
	store *Store
	owner string
}

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holder has one
// of them. A request for several keys has some of them for a moment before it finds
// another one busy; requests for those keys get locking.ErrBusy too.
//
// A grant waits for the disk, which syncs the fence. If that takes 100 ms longer than ctx,
// the error matches ctx.Err() and locking.ErrOutcomeUnknown, and the keys are freed when
// the disk has answered.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (_ locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if err := ctx.Err(); err != nil {
		return locking.Lease{}, err
	}
	if keys, err = locking.SortedKeys(keys); err != nil {
		return locking.Lease{}, err
	}
	answers := make(chan answer, 1)
	go func() {
		lease, err := s.take(keys)
		answers <- answer{lease, err}
	}()
	select {
	case a := <-answers:
		return a.lease, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answers:
		return a.lease, a.err
	case <-time.After(grace):
		go s.undo(answers)
		return locking.Lease{}, driver.NoAnswer(ctx, ctx.Err())
	}
}

// grace is how long a request may outlive its ctx. Nearly all end within it, and so leave
// no key that is held until undo has released it.
const grace = 100 * time.Millisecond

type answer struct {
	lease locking.Lease
	err   error
}

// undo waits for the answer to an abandoned request, and releases what it has taken.
func (s *Store) undo(answers <-chan answer) {
	if a := <-answers; a.err == nil {
		_ = s.Release(context.Background(), a.lease)
	}
}

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("filelock: %s %q: %w", operation, keys, *err)
	}
}

// take locks the files of sorted keys, and writes the next fence to all of them.
func (s *Store) take(keys []string) (locking.Lease, error) {
	h := &hold{}
	fence, err := s.grant(h, keys)
	if err != nil {
		h.free()
		return locking.Lease{}, err
	}
	owner := rand.Text() // at least 128 random bits
	holds.Store(grant{s, owner}, h)
	return locking.Lease{Keys: keys, Owner: owner, Fence: fence}, nil
}

// grant adds the locked files to h, and returns the fence that it has written to them.
func (s *Store) grant(h *hold, keys []string) (fence locking.Fence, err error) {
	for _, key := range keys {
		f, err := s.open(key)
		if err != nil {
			return 0, err
		}
		h.files = append(h.files, f)
		last, err := readFence(f)
		if err != nil {
			return 0, err
		}
		fence = max(fence, last+1)
	}
	for _, f := range h.files {
		if err := s.writeFence(f, fence); err != nil {
			return 0, err
		}
	}
	return fence, nil
}

// Renew checks that the lease still holds its keys; there is no TTL to restart. It
// returns locking.ErrLost, finally, if a file was deleted or replaced, or its descriptor
// was closed. The other keys of the lease stay locked until Release. After any other
// error the lease is as valid as before.
func (s *Store) Renew(_ context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	h, found := holds.Load(grant{s, l.Owner})
	if !found {
		return l, locking.ErrLost
	}
	return l, h.(*hold).check()
}

// Release frees the keys. It returns locking.ErrLost if the lease no longer held one of
// them; the others are freed all the same. It does not wait, and frees them after the end
// of ctx too.
func (s *Store) Release(_ context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	found, held := holds.LoadAndDelete(grant{s, l.Owner})
	if !held {
		return locking.ErrLost
	}
	h := found.(*hold)
	defer h.free()
	if err := h.check(); errors.Is(err, locking.ErrLost) {
		return err
	}
	return nil
}
