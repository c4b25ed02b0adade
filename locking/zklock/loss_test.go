package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// Goal: an operator who deletes or writes nodes ends leases, and the Store that had the key grants nothing because
// of that. Method: each way in which a Store learns of it.

// ends are the ways in which a Store learns that the node of a holder is gone.
var ends = map[string]func(ctx context.Context, s *Store, l locking.Lease) error{
	"renew":   func(ctx context.Context, s *Store, l locking.Lease) error { _, err := s.Renew(ctx, l); return err },
	"release": func(ctx context.Context, s *Store, l locking.Lease) error { return s.Release(ctx, l) },
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
			awaitQueue(t, s, "k", 2)
			awaitBehind(t, s, held, "")
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
			awaitNodes(t, s, 1)
		})
	}
}

// An operator deletes the queue with the node of a holder, and another Store makes it again: the numbers begin at 0 too. The
// Store that had the key does not take its waiter for the first.
func TestLoss_OfTheQueueGrantsNothing(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := shared(t)
			a, b := g.must(t, time.Minute), g.must(t, time.Minute)
			lost := locktest.Taken(t, a, "k")
			for _, path := range []string{a.queueOf("k") + "/" + queueIn(t, a, "k")[0], a.queueOf("k")} {
				if err := b.conn.Delete(path, -1); err != nil {
					t.Fatal(err)
				}
			}
			held := locktest.Taken(t, b, "k")
			next := acquireInBackground(t.Context(), a, "k")
			awaitQueue(t, a, "k", 2)
			awaitBehind(t, a, lost, "")
			if err := end(t.Context(), a, lost); !errors.Is(err, locking.ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
			locktest.Eventually(t, "the waiter watches the other Store's node", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return len(a.watches) == 1 || len(next) > 0
			})
			select {
			case got := <-next:
				t.Fatalf("granted %+v while %+v is held", got, held)
			default:
			}
			locktest.Released(t, b, held)
			if got := <-next; got.error != nil {
				t.Error(got.error)
			}
		})
	}
}

// An operator writes the node of a holder. The waiter of another Store takes that for its release, and the holder hears
// of the loss.
func TestLoss_ByAWrittenNode(t *testing.T) {
	t.Parallel()
	g := shared(t)
	waiting, requests := g.counted(t)
	s := g.must(t, time.Minute)
	held := locktest.Taken(t, s, "k")
	next := acquireInBackground(t.Context(), waiting, "k")
	awaitQueue(t, s, "k", 2)
	requests.awaitWatch(t, waiting)
	if _, err := s.conn.Set(s.queueOf("k")+"/"+queueIn(t, s, "k")[0], []byte("x"), -1); err != nil {
		t.Fatal(err)
	}
	if got := <-next; got.error != nil || got.Fence <= held.Fence {
		t.Errorf("%+v after %+v", got, held)
	}
	if _, err := s.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	awaitQueue(t, waiting, "k", 1)
}
