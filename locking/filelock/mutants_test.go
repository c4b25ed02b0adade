// SPDX-License-Identifier: MIT

package filelock

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/locktest/faulty"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

// locksWith makes a mutant of the system call that locks a file.
func locksWith(lock func(*os.File) error) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		s.lock = lock
		return s
	}
}

// fcntlLock takes a POSIX record lock. It belongs to the process, so goroutines share it.
func fcntlLock(f *os.File) error {
	return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
}

func sharedLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) }

// fences makes a mutant whose leases have other fences.
func fences(next func(last locking.Fence) locking.Fence) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		var mu sync.Mutex
		var last locking.Fence
		return faulty.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			lease, err := s.TryAcquire(ctx, keys...)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				last = next(last)
				lease.Fence = last
			}
			return lease, err
		}}
	}
}

// releasesByKey frees the keys of whichever lease has them.
func releasesByKey(s *Store) locking.Store {
	return faulty.Twisted{Store: s, Free: func(ctx context.Context, l locking.Lease) error {
		holds.Range(func(key, h any) bool {
			for _, f := range h.(*hold).files {
				for _, k := range l.Keys {
					if f.Name() == s.path(k) {
						holds.Delete(key)
						h.(*hold).free()
					}
				}
			}
			return true
		})
		return nil
	}}
}

// takesAgain takes the keys of a lost lease again.
func takesAgain(s *Store) locking.Store {
	return faulty.Twisted{Store: s, Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
		next, err := s.Renew(ctx, l)
		if err != nil {
			_, _ = s.TryAcquire(ctx, l.Keys...)
		}
		return next, err
	}}
}

// expires frees the keys after a TTL.
func expires(s *Store) locking.Store {
	return faulty.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		lease, err := s.TryAcquire(ctx, keys...)
		time.AfterFunc(50*time.Millisecond, func() { _ = s.Release(context.Background(), lease) })
		return lease, err
	}}
}

// trustsATTL promises an end of the trust that the kernel does not know.
func trustsATTL(s *Store) locking.Store { return faulty.TrustsFromTheAnswer(s, time.Minute) }

var anyStore = faulty.Any[*Store]

func renames(encode func(string) string) func(*Store) locking.Store {
	return func(s *Store) locking.Store { return faulty.Renames(s, encode) }
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	own, exclusion := "Own/ReleaseAndRenewTouchOnlyTheirOwn", []string{"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores"}
	grants := func(s *Store) locking.Store { return faulty.GrantsHeldKeys(s, 0) }
	for name, m := range map[string]struct {
		broken func(*Store) locking.Store
		caught []string
	}{
		"no lock":                 {locksWith(func(*os.File) error { return nil }), exclusion},
		"fcntl lock":              {locksWith(fcntlLock), exclusion},
		"shared lock":             {locksWith(sharedLock), exclusion},
		"grants held keys":        {grants, append(exclusion, own, "Fence/GrowsOverGrants")},
		"releases by key":         {releasesByKey, []string{own}},
		"releases nothing":        {anyStore(faulty.ReleasesNothing), []string{"Lost/StaysLost", "Do/PanicFreesTheKeys", "Multi/AllOrNone"}},
		"renews without looking":  {anyStore(faulty.RenewsBlindly), []string{own, "Lost/StaysLost"}},
		"takes a lost key again":  {takesAgain, []string{"Lost/StaysLost"}},
		"ignores ctx":             {anyStore(faulty.Deaf), []string{"Ctx/EndedBeforehandTakesNothing"}},
		"expires":                 {expires, []string{"Expires/Not"}},
		"an end of the trust":     {trustsATTL, []string{"Lost/StaysLost"}},
		"fence in memory":         {fences(func(last locking.Fence) locking.Fence { return last + 1 }), []string{"Fence/GrowsOverGrants", "Fence/SurvivesRestart"}},
		"fence that never grows":  {fences(func(locking.Fence) locking.Fence { return 7 }), []string{"Fence/GrowsOverGrants", "Multi/FenceAboveThoseOfEachKey"}},
		"no fence":                {fences(func(locking.Fence) locking.Fence { return 0 }), []string{"Fence/GrowsOverGrants"}},
		"case ignored":            {renames(strings.ToLower), []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":          {renames(strings.TrimSpace), []string{"Keys/OddOnesNeverCollide"}},
		"cut at 255 bytes":        {renames(func(k string) string { return k[:min(len(k), 255)] }), []string{"Keys/OddOnesNeverCollide"}},
		"slashes replaced":        {renames(func(k string) string { return strings.ReplaceAll(k, "/", "_") }), []string{"Keys/OddOnesNeverCollide"}},
		"any key is valid":        {renames(func(string) string { return "k" }), []string{"Keys/InvalidAreErrKey"}},
		"several keys one by one": {anyStore(faulty.TakesOneByOne), []string{"Multi/AllOrNone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.WantFailing(t, target{m.broken}.open, promises, m.caught...)
		})
	}
}

// A Store must keep the promises that it makes, and must not keep one that it does not make.
func TestContract_NoticesWrongPromises(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	for caught, change := range map[string]func(*locktest.Promises){
		"Expires/FreesTheKeysAfterUntil": func(p *locktest.Promises) { p.Expires, p.MinTTL = true, time.Millisecond },
		"Fence/None":                     func(p *locktest.Promises) { p.Fences, p.FencePersists = false, false },
		"Fence/DoesNotSurviveRestart":    func(p *locktest.Promises) { p.FencePersists = false },
		"Multi/Refused":                  func(p *locktest.Promises) { p.MultiKey = false },
	} {
		p := promises
		change(&p)
		locktest.WantFailing(t, target{}.open, p, caught)
	}
}
