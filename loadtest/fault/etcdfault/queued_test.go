package etcdfault

import (
	"testing"
	"time"

	"shop/loadtest/fault"
)

func TestQueued_CountsTheLocksThatWereAskedForAndTheLeasesThatAreOver(t *testing.T) {
	client, prefix := shared(t)
	watched, err := WatchQueues(t.Context(), client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	lost, kept, other := open(t, client, prefix, 6*time.Second), open(t, client, prefix, 6*time.Second), open(t, client, prefix+"x", 6*time.Second)
	if _, err := lost.TryAcquire(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	if revoked, err := Evict(t.Context(), client, prefix, "a"); err != nil || !revoked {
		t.Fatal(revoked, err)
	}
	between := time.Now()
	if _, err := kept.TryAcquire(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryAcquire(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	watched.await(t, 3)
	seen, err := watched.Stop(t.Context(), between)
	if want := (Seen{All: 3, After: 1, Ended: 1}); err != nil || seen != want {
		t.Errorf("%+v (%v), want %+v", seen, err, want)
	}
}

// A lock that counts its own events, and talks to no etcd, has none.
func TestQueued_NothingAskedForIsNothingSeen(t *testing.T) {
	client, prefix := shared(t)
	watched, err := WatchQueues(t.Context(), client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if seen, err := watched.Stop(t.Context(), time.Now()); err != nil || seen != (Seen{}) {
		t.Errorf("%+v, %v", seen, err)
	}
}

// await returns when so many have been seen.
func (q *Queued) await(t *testing.T, n int) {
	t.Helper()
	seen := func() int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.moments)
	}
	for seen() < n {
		if !fault.Wait(t.Context(), time.Millisecond) {
			t.Fatalf("%d seen, want %d", seen(), n)
		}
	}
}
