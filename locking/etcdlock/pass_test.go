package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
)

// waits starts a request that waits in its process, behind n others.
func waits(t *testing.T, s *Store, ctx context.Context, n int, keys ...string) <-chan locktest.Outcome[locking.Lease] {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	t.Cleanup(cancel)
	granted := locktest.Beside(func() (locking.Lease, error) { return s.Acquire(ctx, keys...) })
	locktest.Eventually(t, "the request is in the queue", func() bool { return s.queue.Len(keys[0]) == n+1 })
	return granted
}

// A grant within a process is one request, under the name that is in the queue already.
func TestRelease_PassesTheKeyInOneRequest(t *testing.T) {
	t.Parallel()
	store, w, _, g := behindProxy(t, 20*time.Second)
	client := g.client(t)
	lease := locktest.Taken(t, store, "k")
	name := inQueue(t, client, g.prefix, "k")[0]
	var granted []<-chan locktest.Outcome[locking.Lease]
	for i := range 5 {
		granted = append(granted, waits(t, store, t.Context(), i+1, "k"))
	}
	before := w.txnsSoFar()
	for i, waiter := range granted {
		locktest.Released(t, store, lease)
		next, err := (<-waiter).Pair()
		if err != nil || next.Fence <= lease.Fence || next.Owner == lease.Owner {
			t.Fatalf("granted %+v, %v after %+v", next, err, lease)
		}
		if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
			t.Errorf("the lease before is released again: %v", err)
		}
		if names := inQueue(t, client, g.prefix, "k"); len(names) != 1 || names[0] != name {
			t.Errorf("grant %d: in the queue are %q, want %q", i, names, name)
		}
		lease = next
	}
	if n := w.txnsSoFar() - before; n != len(granted) {
		t.Errorf("%d transactions for %d grants", n, len(granted))
	}
	locktest.Released(t, store, lease)
	if names := inQueue(t, client, g.prefix, "k"); len(names) != 0 {
		t.Errorf("%q are left", names)
	}
}

// The order of arrival among the processes is that in etcd: a key is not passed on while another process waits for it.
func TestRelease_PassesNoKeyForWhichAnotherProcessWaits(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, other, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, store, "k")
	theirs := waits(t, other, t.Context(), 0, "k")
	locktest.Eventually(t, "the other process waits in etcd", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	ours := waits(t, store, t.Context(), 1, "k")
	locktest.Released(t, store, held)
	next, err := (<-theirs).Pair()
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) != 0 {
		t.Error("granted to the request that came last")
	}
	locktest.Released(t, other, next)
	last, err := (<-ours).Pair()
	if err != nil || last.Fence <= next.Fence || next.Fence <= held.Fence {
		t.Errorf("fences %d, %d, %d, %v", held.Fence, next.Fence, last.Fence, err)
	}
	locktest.Released(t, store, last)
}

// What is passed to a request that has left is removed, or goes to the one behind it.
func TestRelease_PassesToARequestThatHasLeft(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string][]string{"no other waits": nil, "another waits": {"k"}, "another wants two keys": {"j", "k"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, other, _ := behindProxy(t, 30*time.Second)
			session := id(store)
			held := locktest.Taken(t, store, "k")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := waits(t, store, ctx, 1, "k")
			var second <-chan locktest.Outcome[locking.Lease]
			if behind != nil {
				bounded, end := context.WithTimeout(t.Context(), 30*time.Second)
				defer end()
				second = locktest.Beside(func() (locking.Lease, error) { return store.Acquire(bounded, behind...) })
				locktest.Eventually(t, "the request is in the queue", func() bool { return store.queue.Len("k") == 3 })
			}
			unblock := w.holdNext("/Txn")
			defer unblock()
			released := locktest.Beside(func() (struct{}, error) { return struct{}{}, store.Release(t.Context(), held) })
			locktest.Eventually(t, "the release is under way", func() bool { return w.heldSoFar() == 1 })
			cancel()
			if _, err := (<-first).Pair(); !errors.Is(err, context.Canceled) {
				t.Errorf("the request that leaves: %v", err)
			}
			unblock()
			if _, err := (<-released).Pair(); err != nil {
				t.Errorf("release: %v", err)
			}
			if second != nil {
				lease, err := (<-second).Pair()
				if err != nil || lease.Fence <= held.Fence {
					t.Fatalf("the next request: %+v, %v", lease, err)
				}
				locktest.Released(t, store, lease)
			}
			asked := time.Now()
			lease, err := (<-waits(t, other, t.Context(), 0, "k")).Pair()
			if took := time.Since(asked); err != nil || took > store.ttl/3 {
				t.Errorf("%v; another process had to wait %v", err, took)
			}
			locktest.Released(t, other, lease)
			store.mu.Lock()
			defer store.mu.Unlock()
			if len(store.passed) != 0 || len(store.grants) != 0 || store.session == nil || store.session.id != session {
				t.Errorf("%d passed, %d grants left, session %v", len(store.passed), len(store.grants), store.session)
			}
		})
	}
}

// A key cannot be passed on if etcd is full: it is released as if no request waited.
func TestRelease_WithoutSpaceFreesTheKey(t *testing.T) {
	t.Parallel()
	store, w, other, _ := behindProxy(t, 20*time.Second)
	held := locktest.Taken(t, store, "k")
	next := waits(t, store, t.Context(), 1, "k")
	w.loseTxn(rpctypes.ErrGRPCNoSpace)
	locktest.Released(t, store, held)
	lease, err := (<-next).Pair()
	if err != nil || lease.Fence <= held.Fence || w.lostSoFar() != 1 {
		t.Fatalf("%+v, %v; %d answers were replaced", lease, err, w.lostSoFar())
	}
	locktest.WantHeld(t, other, "k")
	locktest.Released(t, store, lease)
}

// A renewal finds the revision that a release has put, before that release has its answer. It must not remove the name,
// which is now that of the next holder.
func TestRenew_DuringAReleaseRemovesNothing(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client := g.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, store, "k")
	grant, err := store.grantOf(held)
	if err != nil {
		t.Fatal(err)
	}
	grant.claimed.Store(true)
	if _, err := client.Put(t.Context(), grant.name("k"), "", clientv3.WithLease(grant.session.id)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renewed: %v", err)
	}
	if _, err := store.grantOf(held); err != nil {
		t.Errorf("the grant has ended, and its name is being removed: %v", err)
	}
}

// A session that has died keeps its other leases. What was passed under it would be held as long as they are.
func TestRelease_OfADeadSessionPassesNothing(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]bool{"before the release": false, "during the release": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, _, _ := behindProxy(t, 30*time.Second)
			other, held := locktest.Taken(t, store, "j"), locktest.Taken(t, store, "k")
			next := waits(t, store, t.Context(), 1, "k")
			store.mu.Lock()
			x := store.session
			store.mu.Unlock()
			die := func() {
				x.die(errOrphans)
				locktest.Eventually(t, "another session is open", func() bool {
					store.mu.Lock()
					defer store.mu.Unlock()
					return store.session != nil
				})
			}
			unblock := func() {}
			if during {
				unblock = w.holdNext("/Txn")
				defer unblock()
			} else {
				die()
			}
			released := locktest.Beside(func() (struct{}, error) { return struct{}{}, store.Release(t.Context(), held) })
			if during {
				locktest.Eventually(t, "the release is under way", func() bool { return w.heldSoFar() == 1 })
				die()
			}
			unblock()
			if _, err := (<-released).Pair(); err != nil {
				t.Error(err)
			}
			lease, err := (<-next).Pair()
			if left := time.Until(other.Until); err != nil || left < store.ttl/3 {
				t.Fatalf("%v; granted %v before the session's other lease ended", err, left)
			}
			locktest.Released(t, store, lease)
		})
	}
}

// The fence of a lease is of the Store's epoch.
func TestRelease_PassesNothingInAnotherEpoch(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *Store){
		"a new value": func(t *testing.T, s *Store) {
			if _, err := s.client.Put(t.Context(), epochKey(s.prefix), "another"); err != nil {
				t.Fatal(err)
			}
		},
		"another cluster": func(_ *testing.T, s *Store) { s.epoch.cluster++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := shared(t).must(t, 20*time.Second)
			held := locktest.Taken(t, store, "k")
			next := waits(t, store, t.Context(), 1, "k")
			change(t, store)
			locktest.Released(t, store, held)
			if lease, err := (<-next).Pair(); !errors.Is(err, ErrEpoch) {
				t.Errorf("granted %+v, %v; want %v", lease, err, ErrEpoch)
			}
		})
	}
}

// The lease ends while its release is under way: its name is being removed, and is not passed on.
func TestRelease_OfALeaseThatHasEndedPassesNothing(t *testing.T) {
	t.Parallel()
	store, w, other, _ := behindProxy(t, 30*time.Second)
	held := locktest.Taken(t, store, "k")
	next := waits(t, store, t.Context(), 1, "k")
	unblock := w.holdNext("/Txn")
	defer unblock()
	released := locktest.Beside(func() (struct{}, error) { return struct{}{}, store.Release(t.Context(), held) })
	locktest.Eventually(t, "the release is under way", func() bool { return w.heldSoFar() == 1 })
	store.mu.Lock()
	store.grants[held.Owner].lease.Until = time.Now()
	store.mu.Unlock()
	store.expire()
	unblock()
	<-released
	lease, err := (<-next).Pair()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Errorf("the next lease: %v", err)
	}
	locktest.WantHeld(t, other, "k")
	locktest.Released(t, store, lease)
}

// The release has passed the key on in etcd, and its lease ends before the answer comes: the name is being removed, and
// what was passed must not become a lease. A request that inherited it would hold a key that another process has.
func TestRelease_WhoseLeaseEndedBeforeItsAnswerBequeathsNothing(t *testing.T) {
	t.Parallel()
	store, w, other, g := behindProxy(t, 30*time.Second)
	client := g.client(t)
	held := locktest.Taken(t, store, "k")
	name := inQueue(t, client, g.prefix, "k")[0]
	next := waits(t, store, t.Context(), 1, "k")
	unblock := w.holdNextAnswer("/Txn")
	defer unblock()
	released := locktest.Beside(func() (struct{}, error) { return struct{}{}, store.Release(t.Context(), held) })
	locktest.Eventually(t, "etcd has passed the key on", func() bool { return w.servedSoFar() == 1 })
	store.mu.Lock()
	store.grants[held.Owner].lease.Until = time.Now()
	store.mu.Unlock()
	store.expire()
	lease, err := (<-next).Pair()
	if err != nil {
		t.Fatal(err)
	}
	if names := inQueue(t, client, g.prefix, "k"); len(names) != 1 || names[0] == name {
		t.Errorf("in the queue are %q, want another name than %q", names, name)
	}
	unblock()
	<-released
	locktest.Released(t, store, lease)
	theirs := locktest.Taken(t, other, "k")
	ours := waits(t, store, t.Context(), 0, "k")
	locktest.Eventually(t, "the request waits in etcd", func() bool { return len(ours) > 0 || waiting(t, client, g.prefix, "k") == 1 })
	if len(ours) > 0 {
		t.Fatal("two holders: what the release passed on was granted beside the lease of another process")
	}
	locktest.Released(t, other, theirs)
	if lease, err = (<-ours).Pair(); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, store, lease)
}

// A request that is under way when its session dies is not waited for: the next one uses a new session.
func TestAcquire_EndsItsRequestWithTheSession(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(*Store, context.Context, ...string) (locking.Lease, error){
		"waiting": (*Store).Acquire, "trying": (*Store).TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, _, _ := behindProxy(t, 30*time.Second)
			unblock := w.holdNext("/Txn")
			defer unblock()
			granted := locktest.Beside(func() (locking.Lease, error) { return acquire(store, t.Context(), "k") })
			locktest.Eventually(t, "the request is under way", func() bool { return w.heldSoFar() == 1 })
			store.mu.Lock()
			store.session.kill(errOrphans)
			store.down = nil
			store.mu.Unlock()
			lease, err := (<-granted).Pair()
			if err != nil {
				t.Fatal(err)
			}
			locktest.Released(t, store, lease)
		})
	}
}
