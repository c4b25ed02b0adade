// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"shop/locking"
)

// at returns an operation of a new client on one wallet, or two.
func at(ids ...uuid.UUID) *operation {
	o := &operation{req: Request{Client: uuid.New()}, intent: Operation{Wallet: ids[0]}}
	if len(ids) > 1 {
		o.intent.To = &ids[1]
	}
	return o
}

// A client can fill its own share of a queue only. A request whose commit is unknown is let in,
// however full the queue is.
func TestQueues_AreBoundedForNewRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, id, other := newQueues(2), uuid.New(), uuid.New()
		leave, err := l.enter(t.Context(), at(id))
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := func(o *operation) {
			go func() {
				if _, err := l.enter(ctx, o); !errors.Is(err, gone) {
					t.Errorf("%v, want the cause", err)
				}
			}()
			synctest.Wait()
		}
		greedy := at(id)
		wait(greedy)
		if _, err := l.enter(t.Context(), greedy); !errors.Is(err, errQueueFull) || !errors.Is(err, locking.ErrBusy) {
			t.Errorf("%v, want the queue full for a client that has its share", err)
		}
		wait(at(id))
		if _, err := l.enter(t.Context(), at(other, id)); !errors.Is(err, errQueueFull) || l.Len(other) != 0 {
			t.Errorf("%v, want the queue full; %d in the queue of the other wallet", err, l.Len(other))
		}
		unknown := at(id)
		unknown.unknown = true
		wait(unknown)
		cancel(gone)
		leave()
	})
}

// A payment waits in the queues of both wallets.
func TestQueues_TwoWalletsInEitherOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	l := newQueues(64)
	a, b := uuid.UUID{1}, uuid.UUID{2}
	done := make(chan struct{})
	const each = 200
	for _, ids := range [][]uuid.UUID{{a, b}, {a}, {b}, {a, b}} {
		go func() {
			for range each {
				leave, err := l.enter(t.Context(), at(ids...))
				if err != nil {
					t.Error(err)
				} else {
					leave()
				}
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	if n := l.Len(a) + l.Len(b); n != 0 {
		t.Errorf("%d are left in the queue", n)
	}
}

func TestOperationID_IsOneForEachKeyOfEachClient(t *testing.T) {
	t.Parallel()
	alice, bob := uuid.UUID{1}, uuid.UUID{2}
	req := Request{Client: alice, Key: "k"}
	if operationID(req) != operationID(Request{Client: alice, Key: "k", Fingerprint: [32]byte{1}}) {
		t.Error("it depends on the request's fingerprint")
	}
	for _, other := range []Request{{Client: bob, Key: "k"}, {Client: alice, Key: "K"}, {Client: alice, Key: "k "}} {
		if operationID(req) == operationID(other) {
			t.Errorf("the same for %+v", other)
		}
	}
	if v := operationID(req).Version(); v != 8 {
		t.Errorf("version %d", v)
	}
}

// Both directions lock in the same order: otherwise two payments could abort each other for ever.
func TestJob_WalletsAreInOneOrderInBothDirections(t *testing.T) {
	t.Parallel()
	for range 64 {
		a, b := uuid.New(), uuid.New()
		there := &operation{intent: Operation{Kind: Pay, Wallet: a, To: &b}}
		back := &operation{intent: Operation{Kind: Pay, Wallet: b, To: &a}}
		if !slices.Equal(there.ids(), back.ids()) {
			t.Fatalf("%v and %v", there.ids(), back.ids())
		}
	}
}
