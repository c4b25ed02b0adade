// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/locktest"
)

// Without a primary a request ends without an answer, or is not sent. With a new primary the
// lease is unchanged, and the next fence is greater.
func TestElection_LeaseAndFenceOutliveThePrimary(t *testing.T) {
	locktest.Slow(t, "three members and an election")
	t.Parallel()
	server := startServer(t)
	c := newCollection(t, server.URL)
	store, other := storeOn(t, c, 30*time.Second), storeOn(t, c, 30*time.Second)
	lease := locktest.Taken(t, store, "k")
	stepDown := bson.D{{Key: "replSetStepDown", Value: 60}, {Key: "force", Value: true}}
	if err := c.Database().Client().Database("admin").RunCommand(t.Context(), stepDown).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := other.TryAcquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("without a primary: %v, want the end of ctx", err)
	}
	command(t, server, bson.D{{Key: "replSetFreeze", Value: 0}})
	locktest.Eventually(t, "the holder renews", func() bool {
		_, err := store.Renew(t.Context(), lease)
		if errors.Is(err, locking.ErrLost) {
			t.Fatal("the lease was lost by an election")
		}
		return err == nil
	})
	locktest.WantHeld(t, other, "k")
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if next := locktest.Taken(t, other, "k"); next.Fence != lease.Fence+1 {
		t.Errorf("fence %d after %d", next.Fence, lease.Fence)
	}
}

// A lease must be taken before the transaction, or the snapshot is older than the lease.
func TestTryAcquire_RefusesInsideATransaction(t *testing.T) {
	t.Parallel()
	store := newStore(t, time.Minute)
	x := begin(t, store.grants)
	if _, err := store.TryAcquire(x.ctx, "k"); !errors.Is(err, ErrTransaction) {
		t.Errorf("got %v, want ErrTransaction", err)
	}
	locktest.Taken(t, store, "k")
}

// A session is for one goroutine, and Do renews in another. So the Store uses neither
// the session of the caller's ctx nor its transaction.
func TestDo_RenewsOutsideTheTransactionOfTheCallersSession(t *testing.T) {
	locktest.Slow(t, "it waits for three renewals")
	t.Parallel()
	const ttl = 6 * time.Second
	store := newStore(t, ttl)
	insert(t, store.grants.Database().Collection("numbers"), "n")
	numbers := store.grants.Database().Collection("numbers")
	renewals := make(chan struct{}, 16)
	o := locking.Options{Observer: func(e locking.Event) {
		if e.Kind == locking.Renewed {
			renewals <- struct{}{}
		}
	}}
	err := numbers.Database().Client().UseSession(t.Context(), func(ctx context.Context) error {
		return locking.Do(ctx, store, o, []string{"k"}, func(ctx context.Context, _ locking.Lease) error {
			session := mongo.SessionFromContext(ctx)
			_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
				if err := ForUpdate(ctx, numbers, "n", &counter{}); err != nil {
					return nil, err
				}
				granted := *stateOf(t, store, "k").Expires
				now := granted
				for n := 0; n < 3 && !now.After(granted); n++ { // the event may be of an earlier renewal
					<-renewals // during the transaction, but not a part of it
					now = *stateOf(t, store, "k").Expires
				}
				if !now.After(granted) {
					t.Errorf("renewed, but another session reads %v, want later than %v", now, granted)
				}
				for range 20 {
					if err := setN(ctx, numbers, "n", 7); err != nil {
						return nil, err
					}
				}
				<-renewals // beyond the TTL
				<-renewals
				return nil, setN(ctx, numbers, "n", 8)
			}, inTx())
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
	if n := read(t, t.Context(), numbers, "n").N; n != 8 {
		t.Errorf("%d, want 8", n)
	}
}
