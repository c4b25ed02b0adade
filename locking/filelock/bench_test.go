// SPDX-License-Identifier: MIT

package filelock

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// raw is what a fence in a locked file needs at least: open, flock, write, sync, close.
func raw(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(line(42)), 0); err != nil {
		return err
	}
	return f.Sync()
}

// BenchmarkUncontended acquires and releases a free key, in alternating series of a
// hundred with raw, and reports the ratio of their times. Compare x-of-raw alone: the
// other figures depend on the disk.
func BenchmarkUncontended(b *testing.B) {
	s := newStore(b, b.TempDir())
	locktest.Released(b, s, locktest.Taken(b, s, "k"))
	series := func(once func() error) time.Duration {
		start := time.Now()
		for range 100 {
			if err := once(); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start) / 100
	}
	var ours, theirs time.Duration
	n := 0.0
	for b.Loop() {
		ours += series(func() error {
			lease, err := s.TryAcquire(b.Context(), "k")
			if err != nil {
				return err
			}
			return s.Release(b.Context(), lease)
		})
		theirs += series(func() error { return raw(s.path("k")) })
		n++
	}
	b.ReportMetric(float64(ours.Microseconds())/n, "us/filelock")
	b.ReportMetric(float64(theirs.Microseconds())/n, "us/raw")
	b.ReportMetric(float64(ours)/float64(theirs), "x-of-raw")
}

// BenchmarkBusy is the cost of one attempt of a waiter.
func BenchmarkBusy(b *testing.B) {
	s := newStore(b, b.TempDir())
	lease := locktest.Taken(b, s, "k")
	for b.Loop() {
		if _, err := s.TryAcquire(b.Context(), "k"); !errors.Is(err, locking.ErrBusy) {
			b.Fatal(err)
		}
	}
	locktest.Released(b, s, lease)
}
