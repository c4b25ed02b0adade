// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"shop/locking"
	"shop/locking/combine"
)

// replica is one service of a lane, with connections and a lock store of its own, as another process would have.
type replica struct {
	number int
	lane   *lane
	act    act
	drop   func(ctx context.Context) bool // deletes the lock, as an operator may; nil: there is none
	locks  link                           // to what grants the locks: the fault Cut
	late   *link                          // to PostgreSQL, if a pause delays what is sent there
	batch  atomic.Int64                   // the last attempt that took the lock for others

	mu     sync.Mutex
	paused time.Time          // until then
	runs   context.Context    // ends with the next pause
	stop   context.CancelFunc // of runs
}

func newReplica(l *lane, number int) *replica {
	r := &replica{number: number, lane: l}
	r.runs, r.stop = context.WithCancel(context.Background())
	l.onClose(func() { r.stop() })
	return r
}

// attemptKey is the context key of the number of an attempt.
type attemptKey struct{}

// attempt returns the attempt that ctx belongs to: a request, or a batch.
func (r *replica) attempt(ctx context.Context) int {
	if n, ok := request(ctx); ok {
		return n
	}
	return int(r.batch.Load())
}

// request returns the attempt of a request. The ctx of a batch of one has the values of its request's ctx, and is that of
// a batch all the same.
func request(ctx context.Context) (n int, ok bool) {
	n, ok = ctx.Value(attemptKey{}).(int)
	return n, ok && combine.Requests(ctx) == 0
}

// locked returns the attempt that has got a lock with ctx. If it is a batch, it begins here.
func (r *replica) locked(ctx context.Context) int {
	if _, ok := request(ctx); !ok {
		r.batch.Store(int64(r.lane.record.beginBatch(r.number)))
	}
	return r.attempt(ctx)
}

// owns notes which attempt got a lease.
func (r *replica) owns(ctx context.Context, lease locking.Lease) {
	attempt := r.locked(ctx)
	r.lane.record.owns(lease.Owner, attempt)
	r.lane.pass(ctx, r, attempt, granted)
}

// step is the failpoint of a service.
func (r *replica) step(ctx context.Context, step string) {
	r.wait(ctx)
	switch step {
	case "after-guard":
		r.lane.pass(ctx, r, r.attempt(ctx), read)
	case "after-commit":
		r.lane.record.add(Event{Attempt: r.attempt(ctx), Kind: "committed"})
	}
}

// pause stops the replica for d.
func (r *replica) pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	r.runs, r.stop = context.WithCancel(context.Background())
	r.paused = time.Now().Add(d)
}

// running returns a ctx that ends with the next pause.
func (r *replica) running() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs
}

// wait returns when the replica is not paused, or ctx has ended.
func (r *replica) wait(ctx context.Context) {
	r.mu.Lock()
	left := time.Until(r.paused)
	r.mu.Unlock()
	if left > 0 {
		sleep(ctx, left)
	}
}

// traced is the lock store of a replica.
type traced struct {
	locking.Store
	*replica
}

// TryAcquire notes which attempt got the lease.
func (t traced) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	t.wait(ctx)
	lease, err := t.Store.TryAcquire(ctx, keys...)
	if err == nil {
		t.owns(ctx, lease)
	}
	return lease, err
}

// Renew sends nothing while the replica is paused.
func (t traced) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	t.wait(ctx)
	if ctx.Err() != nil {
		return l, context.Cause(ctx)
	}
	return t.Store.Renew(ctx, l)
}

// queued is a traced store whose waiters wait in a queue of the store.
type queued struct {
	traced
	waiter locking.Waiter
}

// Acquire leaves the queue when the replica is paused, as the session of a process that has stopped would end.
func (q queued) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	for {
		q.wait(ctx)
		running := q.running()
		short, cancel := context.WithCancel(ctx)
		release := context.AfterFunc(running, cancel)
		lease, err := q.waiter.Acquire(short, keys...)
		release()
		cancel()
		switch {
		case err == nil:
			q.owns(ctx, lease)
			return lease, nil
		case ctx.Err() != nil:
			return lease, fmt.Errorf("%w: %w", locking.ErrBusy, err) // the replica was paused, and the store may not know it
		case running.Err() == nil:
			return lease, err
		}
	}
}
