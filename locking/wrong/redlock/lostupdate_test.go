// SPDX-License-Identifier: MIT

package redlock

import (
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// The outcomes. A adds 10, and B adds 1 meanwhile: without a fence A overwrites that, and
// with a fence A is refused.
var outcomes = map[string]struct {
	fenced  bool
	says    string // A
	balance int64
}{
	"WithoutFenceAnUpdateIsLost": {false, written, 110},
	"WithAFenceAIsRefused":       {true, refused, 101},
}

// A checks its lease, is stopped for longer than its TTL, and then writes.
func TestPausedHolder(t *testing.T) {
	locktest.Slow(t, "a pause longer than a TTL")
	t.Parallel()
	_, servers := startFive(t)
	for name, want := range outcomes {
		t.Run(name, func(t *testing.T) {
			db := newAccount(t)
			a := startHolder(t, servers, db.URL, want.fenced)
			a.says(t, trusted)
			a.stop(t)
			a.tellToWrite(t)

			mustAcquire(t, servers, 10*time.Second) // when A's lease has expired
			b := &update{db: db.Pool, fenced: want.fenced}
			mustUpdate(t, b)

			a.resume(t)
			a.says(t, want.says)
			_ = a.cmd.Wait()
			if got := balance(t, db.Pool); got != want.balance {
				t.Errorf("the balance is %d, want %d", got, want.balance)
			}
		})
	}
}

// A has three servers, since two are down. These come back, and one of the three restarts
// without its data: B has three as well, and both leases are valid.
func TestRestartedServer(t *testing.T) {
	locktest.Slow(t, "a restart of Redis")
	t.Parallel()
	for name, want := range outcomes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newAccount(t)
			servers, urls := startFive(t)
			servers[3].Kill()
			servers[4].Kill()
			first := mustAcquire(t, urls, time.Minute)
			a := &update{db: db.Pool, fenced: want.fenced}
			if err := a.read(t.Context()); err != nil {
				t.Fatal(err)
			}

			servers[3].Start()
			servers[4].Start()
			servers[2].Restart()
			second := mustAcquire(t, urls, time.Minute)
			mustUpdate(t, &update{db: db.Pool, fenced: want.fenced})

			err := a.write(t.Context(), 10)
			if now := time.Now(); now.After(first.Until) || now.After(second.Until) {
				t.Fatalf("the leases do not overlap: %v and %v", first.Until, second.Until)
			}
			if want.fenced != errors.Is(err, locking.ErrStale) || !want.fenced && err != nil {
				t.Errorf("A: got %v, with a fence: %t", err, want.fenced)
			}
			if got := balance(t, db.Pool); got != want.balance {
				t.Errorf("the balance is %d, want %d", got, want.balance)
			}
		})
	}
}

// A pauses between the grant and nextval, so that its fence is newer than that of B, the
// next holder. Then B is refused: no update is lost, although the later holder loses.
func TestFence_TakenAfterThePause(t *testing.T) {
	t.Parallel()
	db := newAccount(t)
	a, b := &update{db: db.Pool, fenced: true}, &update{db: db.Pool, fenced: true}
	for _, u := range []*update{b, a} {
		if err := u.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.write(t.Context(), 1); !errors.Is(err, locking.ErrStale) {
		t.Errorf("B: got %v, want ErrStale", err)
	}
	if err := a.write(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if got := balance(t, db.Pool); got != 110 {
		t.Errorf("the balance is %d, want 110", got)
	}
}

// startFive starts five servers that keep no data.
func startFive(t *testing.T) (servers []*servertest.Server, urls []string) {
	t.Helper()
	for range 5 {
		s := servertest.Start(t, daemon.Redis())
		servers, urls = append(servers, s), append(urls, "redis://"+s.Addr)
	}
	return servers, urls
}

// mustAcquire takes the key for B, or for A in this process.
func mustAcquire(t *testing.T, urls []string, ttl time.Duration) Lease {
	t.Helper()
	lock, end, err := newLock(urls, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	lease, err := acquire(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// mustUpdate is B: it reads and writes at once.
func mustUpdate(t *testing.T, u *update) {
	t.Helper()
	err := u.read(t.Context())
	if err == nil {
		err = u.write(t.Context(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
}
