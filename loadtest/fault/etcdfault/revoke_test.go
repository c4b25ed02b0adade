package etcdfault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

func TestHolders_WhoIsFirstInOneQueueAndWaitsInAnotherHoldsNothing(t *testing.T) {
	t.Parallel()
	e := shared(t)
	first := e.enter(e.prefix, "account/a", "account/b")
	e.enter(e.prefix, "account/b", "account/c") // first at c
	e.enter(e.prefix, "account/c")
	other := e.enter(e.prefix, "account/d")
	got, err := holders(t.Context(), e.client, e.prefix)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]clientv3.LeaseID{
		queue(e.prefix, "account/a"): first, queue(e.prefix, "account/b"): first, queue(e.prefix, "account/d"): other,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Those who wait become holders, and then it is their turn.
func TestLeasesRevoked_RevokesEachHolderBelowItsPrefixAndNobodyElse(t *testing.T) {
	t.Parallel()
	e := shared(t)
	hit := []clientv3.LeaseID{e.enter(e.prefix, "a", "b"), e.enter(e.prefix, "b", "c"), e.enter(e.prefix, "d")}
	spared := []clientv3.LeaseID{e.enter(e.prefix+"2", "a"), e.enter("x"+e.prefix, "a"), e.enter(e.prefix+"/deeper", "a"), e.lease()}
	if _, err := e.client.Put(t.Context(), e.prefix+"/session:1", "", clientv3.WithLease(spared[3])); err != nil {
		t.Fatal(err)
	}
	events, err := LeasesRevoked{e.client, e.prefix, time.Millisecond}.Strike(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Hits != 3 || events[0].Seen["leases_revoked"] != 3 || !events[0].Until.After(events[0].At) {
		t.Errorf("%+v, want one event with three leases", events)
	}
	for _, lease := range hit {
		if e.lives(lease) {
			t.Errorf("lease %x of a holder lives", lease)
		}
	}
	for i, lease := range spared {
		if !e.lives(lease) {
			t.Errorf("lease %d, which holds nothing below the prefix, was revoked", i)
		}
	}
}

func TestLeasesRevoked_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := e.client.Watch(t.Context(), queue(e.prefix, "a"), clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-gone
	e.enter(e.prefix, "a")
	go func() { <-gone; cancel() }()
	if _, err := (LeasesRevoked{e.client, e.prefix, time.Hour}).Strike(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestRevoke_WhatHeldNothingInItsLastMomentDoesNotCount(t *testing.T) {
	t.Parallel()
	e := shared(t)
	gone, late, holder := e.enter(e.prefix, "a"), e.enter(e.prefix, "b"), e.enter(e.prefix, "c")
	if _, err := e.client.Revoke(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if _, err := e.client.Put(t.Context(), e.prefix+"/session:1", "", clientv3.WithLease(late)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.client.Delete(t.Context(), queue(e.prefix, "b"), clientv3.WithPrefix()); err != nil { // released
		t.Fatal(err)
	}
	for lease, want := range map[clientv3.LeaseID]int{gone: 0, late: 0, holder: 1} {
		if lost, err := revoke(t.Context(), e.client, e.prefix, lease); err != nil || len(lost) != want {
			t.Errorf("lost %v, %v; want %d locks", lost, err, want)
		}
	}
}

// The names are those of a real Store.
func TestEvict_TakesTheAccountsLockFromWhoHoldsIt(t *testing.T) {
	t.Parallel()
	e := shared(t)
	account, other := uuid.NewString(), uuid.NewString()
	one, two := e.store(e.prefix), e.store(e.prefix)
	held, err := one.TryAcquire(t.Context(), "account/"+account)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := two.TryAcquire(t.Context(), "account/"+other)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // nobody the second time
		if hit, err := Evict(t.Context(), e.client, e.prefix, strings.ToUpper(account)); hit != want || err != nil {
			t.Errorf("evicted %t, %v; want %t", hit, err, want)
		}
	}
	if _, err := one.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the holder: %v, want ErrLost", err)
	}
	if _, err := two.Renew(t.Context(), kept); err != nil {
		t.Errorf("the other account's holder: %v", err)
	}
	if _, err := Evict(t.Context(), e.client, e.prefix, "nonsense"); err == nil {
		t.Error("no error for what is no account")
	}
}

func TestLeftovers_AreLocksAndNotWhatAStoreKeeps(t *testing.T) {
	t.Parallel()
	e := shared(t)
	store := e.store(e.prefix)
	for range 20 { // a hot key
		lease, err := store.TryAcquire(t.Context(), "account/a")
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	e.enter(e.prefix+"2", "account/a")
	if left, err := Leftovers(t.Context(), e.client, e.prefix); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v; want nothing", left, err)
	}
	planted := e.prefix + "/1:k/planted"
	if _, err := e.client.Put(t.Context(), planted, ""); err != nil {
		t.Fatal(err)
	}
	left, err := LeftAfter(t.Context(), e.client, e.prefix, 2*lookEvery)
	if diff := cmp.Diff([]string{planted}, left); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := LeftAfter(ctx, e.client, e.prefix, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestLeftAfter_WaitsForThoseThatGoYet(t *testing.T) {
	t.Parallel()
	e := shared(t)
	lease := e.enter(e.prefix, "account/a")
	type answer struct {
		left []string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		left, err := LeftAfter(context.WithoutCancel(t.Context()), e.client, e.prefix, time.Minute)
		got <- answer{left, err}
	}()
	if _, err := e.client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.err != nil || len(a.left) > 0 {
		t.Errorf("%+v, want nothing", a)
	}
}
