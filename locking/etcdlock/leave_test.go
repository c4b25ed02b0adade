// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// A refused request leaves nothing behind: it writes nothing, so there is no new revision.
func TestTryAcquire_BusyLeavesNoWaiter(t *testing.T) {
	t.Parallel()
	g := at(t, servertest.StartEtcd(t, 1)[0].Addr) // no other test writes to it: the revision must not change
	holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	locktest.Taken(t, holder, "b")
	before, err := client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		locktest.WantHeld(t, store, "a", "b", "c")
	}
	after, err := client.Get(t.Context(), "x")
	if err != nil || after.Header.Revision != before.Header.Revision {
		t.Errorf("revision %d, then %d, %v", before.Header.Revision, after.Header.Revision, err)
	}
}

// A key that is free but waited for is busy.
func TestTryAcquire_DoesNotOvertakeAWaiter(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b, c, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	first, second := locktest.Taken(t, a, "x"), locktest.Taken(t, a, "y")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := b.Acquire(ctx, "x", "y")
		done <- err
	}()
	awaitWatch(t, b)
	locktest.Released(t, a, first)
	locktest.WantHeld(t, c, "x")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v, want ctx's error and ErrBusy", err)
	}
	locktest.Eventually(t, "x is free", func() bool { return len(inQueue(t, client, g.prefix, "x")) == 0 })
	locktest.Released(t, c, locktest.Taken(t, c, "x"))
	locktest.Released(t, a, second)
}

// When a waiter leaves, the waiters behind it move up, in another process or in the same.
func TestAcquire_NextWaiterMovesUpWhenOneLeaves(t *testing.T) {
	t.Parallel()
	for name, processes := range map[string]int{"among processes": 2, "in one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := shared(t)
			holder, leaver, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
			stayer := leaver
			if processes == 2 {
				stayer = g.must(t, 20*time.Second)
			}
			held := locktest.Taken(t, holder, "k")
			ctx, cancel := context.WithCancel(t.Context())
			left, got := make(chan error), make(chan locking.Lease)
			go func() {
				_, err := leaver.Acquire(ctx, "k")
				left <- err
			}()
			awaitWatch(t, leaver)
			first := inQueue(t, client, g.prefix, "k")[1]
			go func() {
				l, err := stayer.Acquire(t.Context(), "k")
				if err != nil {
					t.Errorf("acquire: %v", err)
				}
				got <- l
			}()
			locktest.Eventually(t, "the second waits", func() bool {
				return waiting(t, client, g.prefix, "k") == processes
			})
			cancel()
			if err := <-left; !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			locktest.Eventually(t, "the first has left, the second waits", func() bool {
				names := inQueue(t, client, g.prefix, "k")
				return len(names) == 2 && names[1] != first
			})
			select {
			case l := <-got:
				t.Fatalf("%+v was granted while %+v is held", l, held)
			default:
			}
			locktest.Released(t, holder, held)
			locktest.Released(t, stayer, <-got)
		})
	}
}
