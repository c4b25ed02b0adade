// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// Goal: an operator who deletes a node ends its lease. Method: each way in which a Store learns of it.

// ends are the ways in which a Store learns that the node of a holder is gone.
var ends = map[string]func(ctx context.Context, s *opened, l locking.Lease) error{
	"renew":   func(ctx context.Context, s *opened, l locking.Lease) error { _, err := s.Renew(ctx, l); return err },
	"release": func(ctx context.Context, s *opened, l locking.Lease) error { return s.Release(ctx, l) },
}

// An operator deletes the node of a holder. The waiter of its Store gets the key when the Store has noticed.
func TestLoss_FreesTheWaiterOfTheSameStore(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t).must(t, time.Minute)
			held := locktest.Taken(t, s, "k")
			next := acquireInBackground(t.Context(), s, "k")
			if err := s.conn.Delete(s.queueOf("k")+"/"+queueIn(t, s, "k")[0], -1); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-next:
				t.Fatalf("granted before the loss: %+v", got)
			default:
			}
			if err := end(t.Context(), s, held); !errors.Is(err, locking.ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
			within(t, "the wait", func() {
				if got := <-next; got.error != nil || got.Fence <= held.Fence {
					t.Errorf("%+v after %+v", got, held)
				}
			})
		})
	}
}
