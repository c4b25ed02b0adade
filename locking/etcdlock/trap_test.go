package etcdlock

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shop/locking"
)

// The traps of etcd's locks that are known from the field, T1 and T4 to T8, one
// test each, and what belongs to them. (T9, leader change, is in cluster_test.go;
// T16, late keep-alives, in session_test.go.)

// T1, T4: two goroutines, one session. etcd's mutex lets the second in, under
// the first one's name and fence.
func TestAcquire_GoroutinesOfOneStoreExcludeEachOther(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 10*time.Second)
	first := take(t, store, "k")
	wantBusy(t, store, "k")
	waited := make(chan locking.Lease)
	go func() {
		second, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		waited <- second
	}()
	waitFor(t, "the second stands in the line", func() bool { return inLine(store, "k") == 2 })
	select {
	case second := <-waited:
		t.Fatalf("%+v was granted while %+v was held", second, first)
	default:
	}
	release(t, store, first)
	if second := <-waited; second.Fence <= first.Fence || second.Owner == first.Owner {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

// inLine counts who stands in the process's line for key, the holder included.
func inLine(s *Store, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines[key])
}

// id is the store's present session, 0 if it has none.
func id(s *Store) clientv3.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return 0
	}
	return s.session.id
}

// behindWire makes a Store whose requests can be disturbed, and another one of
// the same key space.
func behindWire(t *testing.T, ttl time.Duration) (*Store, *wire, *Store, target) {
	t.Helper()
	g := shared(t)
	w, far := newWire(t, g.endpoints[0]), g
	far.endpoints = []string{w.addr}
	store := far.must(t, ttl)
	release(t, store, take(t, store, "warm-up"))
	return store, w, g.must(t, ttl), g
}

// T5, T6: etcd did what was asked, and the answer came too late for ctx. The
// caller hears of ctx at once, and the waiter that nobody waits for is removed
// long before the TTL, without harm to what else is on the session.
func TestAcquire_CtxThatEndsAfterTheTxnWasAppliedLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(*Store, context.Context, ...string) (locking.Lease, error){
		"waiting": (*Store).Acquire, "trying": (*Store).TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, other, g := behindWire(t, 20*time.Second)
			held, session, client := take(t, store, "held"), id(store), g.client(t)
			w.loseNext(1)
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error)
			go func() {
				_, err := acquire(store, ctx, "a", "b")
				result <- err
			}()
			waitFor(t, "the answer is lost", func() bool { return w.lostSoFar() == 1 })
			if len(inQueue(t, client, g.prefix, "a")) != 1 {
				t.Error("the transaction was not applied: this tests nothing")
			}
			cancel()
			asked := time.Now()
			err := <-result
			if took := time.Since(asked); took > time.Second {
				t.Errorf("heard after %v", took)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v, want ctx's error, and that the outcome is unknown", err)
			}
			waitFor(t, "the orphan is gone", func() bool { return len(inQueue(t, client, g.prefix, "a")) == 0 })
			release(t, other, take(t, other, "a", "b"))
			release(t, store, take(t, store, "a", "b"))
			release(t, store, held)
			if took := time.Since(asked); took > 5*time.Second || id(store) != session {
				t.Errorf("it took %v, session %x became %x", took, session, id(store))
			}
		})
	}
}

// The answer alone was lost, or etcd itself could not tell: what it left is
// undone, and then it is made anew.
func TestAcquire_LostAnswerIsUndoneAndMadeAnew(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]error{"silence": nil, "etcd does not know": rpctypes.ErrGRPCTimeout, "the line broke": status.Error(codes.Unavailable, "EOF")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, other, g := behindWire(t, 3*time.Second)
			client := g.client(t)
			w.set(func(w *wire) { w.lose, w.said = 1, said })
			lease := take(t, store, "a", "b")
			if w.lostSoFar() != 1 {
				t.Fatalf("%d answers were lost, want 1", w.lostSoFar())
			}
			for _, k := range lease.Keys {
				if names := inQueue(t, client, g.prefix, k); len(names) != 1 || !strings.HasSuffix(names[0], lease.Owner) {
					t.Errorf("queue of %s: %q, want %s alone", k, names, lease.Owner)
				}
			}
			wantBusy(t, other, "b")
			release(t, store, lease)
		})
	}
}

// What etcd refuses is not undone, since it was not done.
func TestAcquire_RefusalIsPlain(t *testing.T) {
	t.Parallel()
	store, w, _, _ := behindWire(t, 3*time.Second)
	for _, said := range []error{rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCNoSpace} {
		w.set(func(w *wire) { w.lose, w.said = 1, said })
		if _, err := store.TryAcquire(t.Context(), "k"+said.Error()); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
			t.Errorf("%v: got %v", said, err)
		}
	}
}

// A request that is late arrives when nobody thinks of it any more. Without the
// gate it would put a waiter that blocks the key as long as the session lives.
func TestAcquire_RequestThatArrivesAfterItWasUndoneDoesNothing(t *testing.T) {
	t.Parallel()
	store, w, other, g := behindWire(t, 20*time.Second)
	client := g.client(t)
	let := w.holdNext("/Txn")
	defer let()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := store.Acquire(ctx, "k")
		result <- err
	}()
	waitFor(t, "the request is on its way", func() bool { return w.heldSoFar() == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	release(t, store, take(t, store, "k")) // possible only when the attempt is undone
	let()
	waitFor(t, "the late request is served", func() bool { return w.servedSoFar() == 1 })
	if names := inQueue(t, client, g.prefix, "k"); len(names) > 0 {
		t.Errorf("it put %q", names)
	}
	release(t, other, take(t, other, "k"))
}

// While an attempt is not undone, nothing new goes on the session; when that
// takes too long, the session is given up, but nobody who holds a Lease under it
// loses it before its Until.
func TestSession_IsGivenUpWhenATraceCannotBeRemoved(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	store, w, other, g := behindWire(t, ttl)
	client := g.client(t)
	held, session, first := take(t, store, "held"), id(store), store.session
	w.loseNext(math.MaxInt)
	asked := time.Now()
	if _, err := store.Acquire(t.Context(), "k"); !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want that the outcome is unknown", err)
	}
	if _, err := store.TryAcquire(t.Context(), "something else"); err == nil || errors.Is(err, locking.ErrBusy) || time.Since(asked) > ttl {
		t.Errorf("a second attempt: got %v after %v", err, time.Since(asked))
	}
	waitFor(t, "the session is given up", func() bool { return id(store) != session })
	if since := time.Since(asked); since < ttl/3 || since > ttl || !errors.Is(first.dead, errTraces) {
		t.Errorf("given up after %v: %v", since, first.dead)
	}
	if _, err := store.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew under the old session: got %v, want ErrLost", err)
	}
	if time.Now().Before(held.Until) {
		wantBusy(t, other, "held")
	} else {
		t.Log("this machine was too slow to look before Until")
	}
	w.loseNext(0)
	var next locking.Lease // under a new session, when the orphan is gone
	waitFor(t, "service is back", func() bool {
		var err error
		next, err = store.Acquire(t.Context(), "k")
		return err == nil
	})
	if next.Until.Before(held.Until) || id(store) == session {
		t.Errorf("granted %+v under session %x", next, id(store))
	}
	waitFor(t, "the old lease is revoked", func() bool { return !slices.Contains(leases(t, client), session) })
	if names := inQueue(t, client, g.prefix, "held"); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

func leases(t *testing.T, client *clientv3.Client) (all []clientv3.LeaseID) {
	t.Helper()
	answer, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range answer.Leases {
		all = append(all, l.ID)
	}
	return all
}

// T7: the session dies under one who waits. He is not granted what he has no
// waiter for any more; he enters again, under a new session, and gets it.
func TestAcquire_SessionThatDiesWhileWaitingIsNotGranted(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 10*time.Second), g.must(t, 3*time.Second), g.client(t)
	held := take(t, holder, "k")
	var granted locking.Lease
	var wait sync.WaitGroup
	wait.Go(func() {
		var err error
		if granted, err = store.Acquire(t.Context(), "k"); err != nil {
			t.Errorf("acquire: %v", err)
		}
	})
	waitFor(t, "it waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	before := inQueue(t, client, g.prefix, "k")
	if _, err := client.Revoke(t.Context(), id(store)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it waits again", func() bool {
		now := inQueue(t, client, g.prefix, "k")
		return len(now) == 2 && now[1] != before[1]
	})
	release(t, holder, held)
	wait.Wait()
	if names := inQueue(t, client, g.prefix, "k"); len(names) != 1 || !strings.HasSuffix(names[0], granted.Owner) {
		t.Errorf("granted %+v; in the queue is %q", granted, names)
	}
	release(t, store, granted)
}

// … and if it dies in the very moment in which his turn comes, he learns it too.
func TestAcquire_SessionThatDiesTogetherWithTheHoldersIsNotGranted(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 10*time.Second), g.must(t, 10*time.Second), g.client(t)
	held := take(t, holder, "k")
	result := make(chan locking.Lease)
	go func() {
		l, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		result <- l
	}()
	waitFor(t, "it waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	names := inQueue(t, client, g.prefix, "k")
	if _, err := client.Txn(t.Context()).Then(clientv3.OpDelete(names[0]), clientv3.OpDelete(names[1])).Commit(); err != nil {
		t.Fatal(err)
	}
	granted := <-result
	if strings.HasSuffix(names[1], granted.Owner) || granted.Fence <= held.Fence {
		t.Errorf("granted %+v, whose waiter was deleted", granted)
	}
	if now := inQueue(t, client, g.prefix, "k"); len(now) != 1 || !strings.HasSuffix(now[0], granted.Owner) {
		t.Errorf("granted %+v; in the queue is %q", granted, now)
	}
}

// T8: etcd takes whole seconds, and raises what it finds too short, in silence.
func TestNew_TTLIsExactlyWhatEtcdGrants(t *testing.T) {
	t.Parallel()
	g := shared(t)
	client := g.client(t)
	for _, ttl := range []time.Duration{minTTL, 7 * time.Second} {
		answer, err := client.TimeToLive(t.Context(), id(g.must(t, ttl)))
		if err != nil || time.Duration(answer.GrantedTTL)*time.Second != ttl {
			t.Errorf("asked for %v: got %+v, %v", ttl, answer, err)
		}
	}
	for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond, time.Millisecond, 0, -time.Second, 1 << 62} {
		if _, err := g.store(t, ttl); !errors.Is(err, ErrTTL) && ttl != 1<<62 || err == nil {
			t.Errorf("TTL %v: got %v, want ErrTTL", ttl, err)
		}
	}
}
