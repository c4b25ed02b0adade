// SPDX-License-Identifier: MIT

package filelock

import (
	"os"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// target is a kind of Store to run the contract on.
type target struct {
	broken func(*Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a folder of its own. It has no Proxied, since
// the store sends no requests.
//
// No server can be restarted: the kernel ends together with all holders. Restartable ends
// what can end without them: a process that has just got the key is killed.
func (g target) open(t testing.TB) locktest.Backend {
	dir := t.TempDir()
	b := locktest.Backend{Open: func(time.Duration) (locking.Store, error) { return g.store(t, dir), nil }}
	b.Restartable = func() (locktest.Backend, func()) {
		return b, func() { startHolder(t, dir, "account/42").kill() }
	}
	return b
}

func (g target) store(t testing.TB, dir string) locking.Store {
	s := newStore(t, dir)
	if g.broken == nil {
		return s
	}
	return g.broken(s)
}

// newStore makes a Store, as another process would have.
func newStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
