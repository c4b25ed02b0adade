// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
)

// etcd accepts 128 operations in one transaction; a larger request is not sent.
func TestAcquire_TakesUpToKeysMaxKeys(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, other, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	var keys []string
	for i := range KeysMax {
		keys = append(keys, fmt.Sprint("key/", i))
	}
	lease, err := store.Acquire(t.Context(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	if lease, err = store.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	locktest.WantHeld(t, other, keys...)
	_, err = client.Delete(t.Context(), inQueue(t, client, g.prefix, keys[3])[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) { // has a condition for each key
		t.Errorf("got %v, want ErrLost", err)
	}
	next, err := other.Acquire(t.Context(), keys...) // the other keys are freed in the background
	if err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, other, next)
	for name, acquire := range map[string]func(context.Context, ...string) (locking.Lease, error){"Acquire": store.Acquire, "TryAcquire": store.TryAcquire} {
		if _, err := acquire(t.Context(), append(keys, "one more")...); !errors.Is(err, ErrTooManyKeys) || errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("%s: got %v, want ErrTooManyKeys", name, err)
		}
	}
}

// Goroutines over several Stores request random keys in random order: all are granted.
func TestAcquire_RandomSetsOfKeysNeverDeadlock(t *testing.T) {
	t.Parallel()
	g := shared(t)
	names := []string{"a", "b", "c", "d", "e"}
	client, inside := g.client(t), map[string]*sync.Mutex{}
	for _, n := range names {
		inside[n] = &sync.Mutex{}
	}
	var all sync.WaitGroup
	for range 3 {
		store := g.must(t, 10*time.Second)
		for range 4 {
			all.Go(func() {
				for range 8 {
					keys := slices.Clone(names)
					rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
					lease, err := store.Acquire(t.Context(), keys[:1+rand.IntN(3)]...)
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					for _, k := range lease.Keys {
						if !inside[k].TryLock() {
							t.Errorf("%s has two holders", k)
							return
						}
					}
					if _, err := client.Get(t.Context(), "a round trip"); err != nil {
						t.Error(err)
					}
					for _, k := range lease.Keys {
						inside[k].Unlock()
					}
					if err := store.Release(t.Context(), lease); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	all.Wait()
}

// A request for several keys waits while any of them is held.
func TestAcquire_WaitsForEachOfItsKeys(t *testing.T) {
	t.Parallel()
	for _, busy := range []string{"a", "b", "c"} {
		g := shared(t)
		holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
		held := locktest.Taken(t, holder, busy)
		got := make(chan locking.Lease, 1)
		go func() {
			l, err := store.Acquire(t.Context(), "a", "b", "c")
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			got <- l
		}()
		locktest.Eventually(t, "the request waits", func() bool { return waiting(t, client, g.prefix, busy) == 1 })
		if renewed, err := holder.Renew(t.Context(), held); err != nil || len(got) > 0 { // a round trip later
			t.Errorf("granted %t while %+v holds %s, %v", len(got) > 0, renewed, busy, err)
		}
		locktest.Released(t, holder, held)
		locktest.Released(t, store, <-got)
	}
}

// Other keys of etcd, with names close to those of a queue, are not taken for waiters.
func TestNames_NeighboursInEtcdAreNoWaiters(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client := g.must(t, 20*time.Second), g.client(t)
	for _, name := range []string{"", "/", "/1:", "/1:k", "/2:k/", "/1:kk/x", "/session:", "/1:l/x"} {
		if _, err := client.Put(t.Context(), g.prefix+name, ""); err != nil {
			t.Fatal(err)
		}
	}
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
	if _, err := client.Put(t.Context(), g.prefix+"/1:k/x", ""); err != nil {
		t.Fatal(err)
	}
	locktest.WantHeld(t, store, "k")
	if _, err := client.Delete(t.Context(), g.prefix+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}
