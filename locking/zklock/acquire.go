package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"shop/locking"
	"shop/locking/driver"
)

// TryAcquire takes the key. It returns locking.ErrBusy if another request holds the key or
// waits for it, and leaves no node behind.
//
// A request whose answer was lost is looked for on the next connection, for at most half the
// TTL, or a third of the TTL for each member if several accept connections and do not answer. If ZooKeeper
// does not answer in that time, TryAcquire returns locking.ErrOutcomeUnknown,
// and what the request has created is removed in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, false)
}

// Acquire waits for the key, in the order of arrival at ZooKeeper. If ctx ends first, the
// error matches ctx.Err(), and locking.ErrBusy too if the request was in the queue. It leaves
// the queue in the background.
func (s *Store) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, true)
}

// attempt is one call of Acquire or TryAcquire.
type attempt struct {
	store  *Store
	key    string
	wait   bool
	queued atomic.Bool // behind another node
}

type outcome struct {
	lease locking.Lease
	err   error
}

// acquire runs the attempt in a goroutine of its own: the client's requests do not end with ctx. When
// the caller has left, that goroutine removes the node.
func (s *Store) acquire(ctx context.Context, keys []string, wait bool) (l locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	key, err := driver.OneKey(keys)
	switch {
	case err != nil:
		return l, err
	case ctx.Err() != nil:
		return l, ctx.Err()
	}
	a, result := &attempt{store: s, key: key, wait: wait}, make(chan outcome)
	s.mu.Lock()
	open := s.background(func() {
		l, err := a.run(ctx)
		select {
		case result <- outcome{l, err}:
		case <-ctx.Done():
			if err == nil {
				_ = s.Release(context.WithoutCancel(ctx), l)
			}
		}
	})
	s.mu.Unlock()
	if !open {
		return l, ErrClosed
	}
	select {
	case r := <-result:
		return r.lease, r.err
	case <-ctx.Done():
		if a.queued.Load() {
			return l, left(ctx)
		}
		return l, locking.NoAnswer(ctx, ctx.Err())
	}
}

// run repeats the attempt with a new node until one is granted, or fails with an error that a
// repetition does not help.
func (a *attempt) run(ctx context.Context) (locking.Lease, error) {
	s := a.store
	for {
		outageGrace := s.ttl / 2
		if a.queued.Load() { // it was in the queue: it waits for the next session as for the key
			outageGrace = math.MaxInt64
		}
		x, err := s.ready(ctx, outageGrace)
		if err != nil {
			return locking.Lease{}, err
		}
		limited, cancel := context.WithTimeout(ctx, s.ttl/2)
		n := &node{store: s, session: x, key: a.key, queue: s.queueOf(a.key), owner: rand.Text()}
		if err = a.enter(ctx, limited, n); err == nil {
			if l, ok := s.grant(n); ok {
				cancel()
				return l, nil
			}
			err = errAgain
		}
		_ = n.free(limited)
		cancel()
		switch {
		case errors.Is(err, errNoAnswer):
			return locking.Lease{}, locking.NoAnswer(ctx, err)
		case !errors.Is(err, errAgain) || ctx.Err() != nil:
			return locking.Lease{}, err
		}
	}
}

// enter creates a node in the queue, and returns nil when it is the first. Without wait it enters
// only an empty queue. limited bounds all requests before the wait; a node that is in the queue
// stays there as long as its session, whether ZooKeeper answers or not.
func (a *attempt) enter(ctx, limited context.Context, n *node) error {
	if !a.wait {
		if queue, err := n.list(limited); err != nil || len(queue) > 0 {
			return cmp.Or(err, locking.ErrBusy)
		}
	}
	if err := n.create(limited); err != nil {
		return err
	}
	if n.fence == 0 { // the answer was lost
		if err := n.readFence(limited); err != nil {
			return err
		}
	}
	n.follow()
	switch {
	case n.alone:
		return n.confirm(limited)
	case !a.wait:
		ctx, n.before = limited, "" // which may be gone
	}
	for {
		before, err := n.predecessor(ctx)
		switch {
		case err != nil:
			return err
		case before == "":
			return n.confirm(ctx)
		case !a.wait:
			return locking.ErrBusy
		}
		a.queued.Store(true)
		if err := n.await(ctx, before); err != nil {
			return err
		}
	}
}

// left returns the error of a request that has left its queue because ctx ended.
func left(ctx context.Context) error { return fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err()) }
