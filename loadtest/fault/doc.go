// Package fault does to a system, while it is under load, what operators,
// kernels and networks do to it.
//
// Question: does it still hold when the thing it leans on goes away?
//
//	fault      what happens                               must show, or the run is void
//	crash      SIGKILL to a replica, started again        requests were cut off in the middle
//	lock-lost  lock keys deleted under their holders      keys were there, and holders noticed
//	redis-down SIGKILL to Redis, started again            purchases went on without the lock, and came back to it
//
// Each returns what it did and when, as Events: a fault that nobody can show to
// have happened proves nothing. Faults come one class at a time, so that a
// violation can be blamed on one.
//
// Sources: the nemesis of Jepsen; the failpoints of etcd's robustness suite
// (which voids a run whose fault did not land); `etcdctl lease revoke` in etcd's
// own contrib/lock, the cheapest way to lose a lock without failing anything over.
package fault

import (
	"context"
	"time"
)

// Event is one thing that was done.
type Event struct {
	What  string // "replica 2 killed"
	At    time.Time
	Until time.Time        // when it was undone; At if there was nothing to undo
	Hits  int64            // how often it hit something
	Seen  map[string]int64 // evidence: name → how often it was seen
}

// Fault is done over a while, under load. It returns when all is undone. If ctx
// ends early it undoes what it did, and says what it did until then.
type Fault interface {
	Strike(ctx context.Context, over time.Duration) ([]Event, error)
}

// None does nothing.
type None struct{}

// Strike returns at once.
func (None) Strike(context.Context, time.Duration) ([]Event, error) { return nil, nil }

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
