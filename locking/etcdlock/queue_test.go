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
)

// Many wait in one process, and one of them in etcd. They are served in the order
// in which they came.
func TestAcquire_OneWaiterOfAProcessIsInEtcd(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	held := take(t, holder, "k")
	const waiters = 10
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			l, err := store.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if n := len(inQueue(t, client, g.prefix, "k")); n != 1 {
				t.Errorf("%d in etcd's queue", n)
			}
			if err := store.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
		waitFor(t, "the next one waits", func() bool { return inLine(store, "k") == i+1 })
	}
	waitFor(t, "one is in etcd", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	release(t, holder, held)
	all.Wait()
	if !slices.IsSorted(order) || len(order) != waiters {
		t.Errorf("served in the order %v", order)
	}
	if inLine(store, "k") != 0 || len(store.lines) != 0 {
		t.Errorf("the line is not empty: %v", store.lines)
	}
}

// Each grant is a waiter of its own, so a process with a crowd does not keep out
// one with a single waiter: at most one turn each.
func TestAcquire_CrowdOfOneProcessLetsOthersIn(t *testing.T) {
	t.Parallel()
	g := shared(t)
	crowd, single, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	held := take(t, crowd, "k")
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	enter := func(who string, s *Store) {
		all.Go(func() {
			l, err := s.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("%s: %v", who, err)
				return
			}
			mu.Lock()
			order = append(order, who)
			mu.Unlock()
			if err := s.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		enter("crowd", crowd)
	}
	waitFor(t, "the crowd is there", func() bool { return inLine(crowd, "k") == 11 })
	enter("single", single)
	waitFor(t, "the single one waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	release(t, crowd, held)
	all.Wait()
	if at := slices.Index(order, "single"); at > 1 {
		t.Errorf("%d of the crowd came before the single one: %v", at, order)
	}
}

// Who is refused has left nothing behind: not even for a moment, and no history.
func TestTryAcquire_BusyLeavesNoWaiter(t *testing.T) {
	t.Parallel()
	g := at(t, startServer(t).client) // alone on it, to see the revision stand still
	holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	take(t, holder, "b")
	before, err := client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		wantBusy(t, store, "a", "b", "c")
	}
	after, err := client.Get(t.Context(), "x")
	if err != nil || after.Header.Revision != before.Header.Revision {
		t.Errorf("revision %d, then %d, %v", before.Header.Revision, after.Header.Revision, err)
	}
}

// A waiter counts: to try is not to push in.
func TestTryAcquire_DoesNotOvertakeWhoWaits(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b, c, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	first, second := take(t, a, "x"), take(t, a, "y")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := b.Acquire(ctx, "x", "y")
		done <- err
	}()
	waitFor(t, "it waits", func() bool { return waiting(t, client, g.prefix, "x") == 1 })
	release(t, a, first)
	wantBusy(t, c, "x")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v, want ctx's error and ErrBusy", err)
	}
	waitFor(t, "x is free", func() bool { return len(inQueue(t, client, g.prefix, "x")) == 0 })
	release(t, c, take(t, c, "x"))
	release(t, a, second)
}

// etcd takes 128 operations in one transaction; what does not fit is not sent.
func TestAcquire_AsManyKeysAsEtcdTakesAndNoMore(t *testing.T) {
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
	wantBusy(t, other, keys...)
	_, err = client.Delete(t.Context(), inQueue(t, client, g.prefix, keys[3])[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) { // the way with as many conditions
		t.Errorf("got %v, want ErrLost", err)
	}
	next, err := other.Acquire(t.Context(), keys...) // the others go in the background
	if err != nil {
		t.Fatal(err)
	}
	release(t, other, next)
	for name, acquire := range map[string]func(context.Context, ...string) (locking.Lease, error){"Acquire": store.Acquire, "TryAcquire": store.TryAcquire} {
		if _, err := acquire(t.Context(), append(keys, "one more")...); !errors.Is(err, ErrTooManyKeys) {
			t.Errorf("%s: got %v, want ErrTooManyKeys", name, err)
		}
	}
}

// All want random keys in random order, over several processes: all get them.
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
							t.Errorf("two hold %s", k)
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

// starve is the case in which locks for several keys are known to starve: many
// lock pairs without a pause, one wants eight keys at once.
func starve(t testing.TB, g target) (longest time.Duration, pairs int) {
	names := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var mu sync.Mutex
	for w := range 4 {
		store := g.must(t, 10*time.Second)
		for i := range 4 {
			all.Go(func() {
				for n := w + i; ctx.Err() == nil; n++ {
					lease, err := store.Acquire(ctx, names[n%8], names[(n+1+i)%8])
					if err != nil {
						continue // ctx has ended
					}
					if err := store.Release(context.WithoutCancel(ctx), lease); err != nil {
						t.Errorf("release: %v", err)
					}
					mu.Lock()
					pairs++
					mu.Unlock()
				}
			})
		}
	}
	eight := g.must(t, 10*time.Second)
	for range 20 {
		asked := time.Now()
		lease, err := eight.Acquire(ctx, names...)
		if err != nil {
			t.Errorf("all eight: %v", err)
			break
		}
		longest = max(longest, time.Since(asked))
		if err := eight.Release(ctx, lease); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	stop()
	all.Wait()
	return longest, pairs
}

func TestAcquire_EightKeysAreNotStarvedByPairs(t *testing.T) {
	longest, pairs := starve(t, shared(t))
	t.Logf("16 goroutines locked %d pairs; who wanted all eight keys waited %v at most, of 20 times", pairs, longest.Round(time.Millisecond))
	if longest > 2*time.Second {
		t.Errorf("waited %v", longest)
	}
	if pairs < 100 {
		t.Errorf("%d pairs only: that is no load", pairs)
	}
}

// A waiter that gives up in the middle lets those behind it move up, be they in
// another process or in its own.
func TestAcquire_WaiterThatLeavesLetsTheNextMoveUp(t *testing.T) {
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
			held := take(t, holder, "k")
			ctx, cancel := context.WithCancel(t.Context())
			left, got := make(chan error), make(chan locking.Lease)
			go func() {
				_, err := leaver.Acquire(ctx, "k")
				left <- err
			}()
			waitFor(t, "the first waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
			first := inQueue(t, client, g.prefix, "k")[1]
			go func() {
				l, err := stayer.Acquire(t.Context(), "k")
				if err != nil {
					t.Errorf("acquire: %v", err)
				}
				got <- l
			}()
			waitFor(t, "the second waits", func() bool {
				return waiting(t, client, g.prefix, "k") == 2 || inLine(leaver, "k") == 2
			})
			cancel()
			if err := <-left; !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			waitFor(t, "the first has left, the second waits", func() bool {
				names := inQueue(t, client, g.prefix, "k")
				return len(names) == 2 && names[1] != first
			})
			select {
			case l := <-got:
				t.Fatalf("%+v was granted while %+v is held", l, held)
			default:
			}
			release(t, holder, held)
			release(t, stayer, <-got)
		})
	}
}

// Who stops waiting in the process's line, before he ever came to etcd, is not
// in the way of those behind him.
func TestAcquire_LeavingTheLineOfTheProcess(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 20*time.Second)
	held := take(t, store, "k")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := store.Acquire(ctx, "k")
		left <- err
	}()
	waitFor(t, "it stands in the line", func() bool { return inLine(store, "k") == 2 })
	cancel()
	if err := <-left; !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ctx's error and ErrBusy", err)
	}
	if n := inLine(store, "k"); n != 1 {
		t.Errorf("%d in the line", n)
	}
	release(t, store, held)
	release(t, store, take(t, store, "k"))
}

// Several keys: one is waited for as the other.
func TestAcquire_WaitsForEachOfItsKeys(t *testing.T) {
	t.Parallel()
	for _, busy := range []string{"a", "b", "c"} {
		g := shared(t)
		holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
		held := take(t, holder, busy)
		got := make(chan locking.Lease, 1)
		go func() {
			l, err := store.Acquire(t.Context(), "a", "b", "c")
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			got <- l
		}()
		waitFor(t, "it waits", func() bool { return waiting(t, client, g.prefix, busy) == 1 })
		if renewed, err := holder.Renew(t.Context(), held); err != nil || len(got) > 0 { // a round trip later
			t.Errorf("granted %t while %+v holds %s, %v", len(got) > 0, renewed, busy, err)
		}
		release(t, holder, held)
		release(t, store, <-got)
	}
}

// Many processes wait, and a release wakes one of them.
func TestAcquire_ReleaseWakesOneWaiter(t *testing.T) {
	t.Parallel()
	g := at(t, startServer(t).client) // alone on it
	w, far := newWire(t, g.endpoints[0]), g
	far.endpoints = []string{w.addr}
	holder, client := g.must(t, 20*time.Second), g.client(t)
	held := take(t, holder, "k")
	const waiters = 5
	got, let := make(chan locking.Lease), make(chan struct{})
	var all sync.WaitGroup
	for i := range waiters {
		store := far.must(t, 20*time.Second)
		all.Go(func() {
			l, err := store.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			got <- l
			<-let
			if err := store.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
		waitFor(t, "the next one waits", func() bool { return waiting(t, client, g.prefix, "k") == i+1 })
	}
	before, quiet := 0, 0
	waitFor(t, "all watch, and nobody asks any more", func() bool {
		n := w.txnsSoFar()
		if quiet++; n != before {
			before, quiet = n, 0
		}
		return quiet > 50
	})
	release(t, holder, held)
	<-got
	release(t, holder, take(t, holder, "another")) // a round trip, in which others might have come
	if n := w.txnsSoFar() - before; n > 1 {
		t.Errorf("a release made %d ask, want the next one alone", n)
	}
	close(let)
	for range waiters - 1 {
		<-got
	}
	all.Wait()
}

// What is foreign in etcd does not disturb.
func TestNames_NeighboursInEtcdAreNoWaiters(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client := g.must(t, 20*time.Second), g.client(t)
	for _, name := range []string{"", "/", "/1:", "/1:k", "/2:k/", "/1:kk/x", "/session:", "/1:l/x"} {
		if _, err := client.Put(t.Context(), g.prefix+name, ""); err != nil {
			t.Fatal(err)
		}
	}
	release(t, store, take(t, store, "k"))
	if _, err := client.Put(t.Context(), g.prefix+"/1:k/x", ""); err != nil {
		t.Fatal(err)
	}
	wantBusy(t, store, "k")
	if _, err := client.Delete(t.Context(), g.prefix+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}
