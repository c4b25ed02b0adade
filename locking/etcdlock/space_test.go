// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// etcd may apply a transaction for which there is no space, and answer ErrNoSpace. The
// waiter that it has put must not stay.
func TestAcquire_RefusedForWantOfSpaceLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(*Store, context.Context, ...string) (locking.Lease, error){
		"waiting": (*Store).Acquire, "trying": (*Store).TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, other, g := behindProxy(t, 20*time.Second)
			client := g.client(t)
			w.loseTxn(rpctypes.ErrGRPCNoSpace)
			l, err := acquire(store, t.Context(), "a", "b")
			if !errors.Is(err, ErrNoSpace) || errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %+v and %v, want ErrNoSpace", l, err)
			}
			locktest.Eventually(t, "it is undone", func() bool { return len(inQueue(t, client, g.prefix, "a")) == 0 })
			locktest.Released(t, other, locktest.Taken(t, other, "a", "b"))
			locktest.Released(t, store, locktest.Taken(t, store, "a", "b"))
		})
	}
}

// etcd becomes full under load: the error says what to do, holders renew and release,
// and nothing stays in any queue. When an operator has freed space, the same Stores
// grant again.
func TestStore_FullEtcdIsAClearErrorAndNothingStays(t *testing.T) {
	locktest.Slow(t, "an etcd of its own")
	t.Parallel()
	m := servertest.StartEtcd(t, 1, "--quota-backend-bytes", "6000000")[0]
	g := at(t, m.Addr)
	client, holder := g.client(t), g.must(t, 30*time.Second)
	held := locktest.Taken(t, holder, "held")
	stores := []*Store{g.must(t, 30*time.Second), g.must(t, 30*time.Second), g.must(t, 30*time.Second)}
	full := exhaust(t, client, stores)
	for _, advice := range []string{"compact", "defrag", "alarm disarm", "--quota-backend-bytes"} {
		if !strings.Contains(full.Error(), advice) {
			t.Errorf("%q does not say %q", full, advice)
		}
	}
	if _, err := New(t.Context(), client, 30*time.Second, Options{Prefix: g.prefix}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("New: got %v, want ErrNoSpace", err)
	}
	for k := range busyKeys {
		key := fmt.Sprint("k", k)
		locktest.Eventually(t, "nothing is left in the queue of "+key, func() bool { return len(inQueue(t, client, g.prefix, key)) == 0 })
	}
	held, err := holder.Renew(t.Context(), held)
	if err != nil {
		t.Errorf("renew: %v", err)
	}
	locktest.Released(t, holder, held)
	makeRoom(t, client, m.Addr)
	for _, s := range stores {
		locktest.Released(t, s, locktest.Taken(t, s, "k0", "held"))
	}
}

// busyKeys is how many keys exhaust contends for.
const busyKeys = 4

// exhaust fills etcd while many callers acquire and release, and returns the first error
// of Acquire.
func exhaust(t *testing.T, client *clientv3.Client, stores []*Store) (full error) {
	t.Helper()
	var work sync.WaitGroup
	var once sync.Once
	for n := range 48 {
		s, key := stores[n%len(stores)], fmt.Sprint("k", n%busyKeys)
		work.Go(func() {
			for {
				l, err := s.Acquire(t.Context(), key)
				if err != nil {
					once.Do(func() { full = err })
					if !errors.Is(err, ErrNoSpace) {
						t.Errorf("acquire: %v", err)
					}
					return
				}
				if err := s.Release(t.Context(), l); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	work.Go(func() {
		for filler := strings.Repeat("x", 100_000); ; {
			if _, err := client.Put(t.Context(), "filler", filler); err != nil {
				return
			}
		}
	})
	work.Wait()
	return full
}

// makeRoom does what an operator does about a full etcd.
func makeRoom(t *testing.T, client *clientv3.Client, endpoint string) {
	t.Helper()
	answer, err := client.Get(t.Context(), "filler", clientv3.WithCountOnly())
	if err == nil {
		_, err = client.Compact(t.Context(), answer.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err == nil {
		_, err = client.Defragment(t.Context(), endpoint)
	}
	if err == nil {
		_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
