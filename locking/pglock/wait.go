package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"shop/locking"
)

// Acquire waits for all keys: in this process in the order of arrival, among the processes
// in any order. The release of a key wakes its waiters with NOTIFY. A notification is only
// a hint: waiters also try again every quarter of a second, which finds expired leases too.
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if the request
// was in the queue.
func (s *Store) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if keys, err = locking.SortedKeys(keys); err != nil {
		return lease, err
	}
	if ctx.Err() != nil {
		return lease, ctx.Err()
	}
	ticket, _ := s.queue.Join(nil, keys...)
	if !ticket.Wait(ctx) {
		return lease, fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err())
	}
	defer ticket.Leave(keys...)
	if !ticket.Waited { // or the request before has just got the keys
		if lease, err = s.take(ctx, keys, false); !errors.Is(err, locking.ErrBusy) {
			return lease, err
		}
	}
	s.listening.Do(func() { s.resolver.Go(s.listen) })
	woken := s.waiters.add(keys) // before the next request, so that no release after it is missed
	defer s.waiters.remove(keys)
	for {
		if lease, err = s.take(ctx, keys, true); ctx.Err() != nil && err != nil {
			return lease, fmt.Errorf("%w: %w", locking.ErrBusy, err)
		} else if !errors.Is(err, locking.ErrBusy) {
			return lease, err
		}
		select {
		case <-woken:
		case <-time.After(s.poll):
		case <-ctx.Done():
			return lease, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// waiters are the requests of one process that wait for a notification: one at most for
// each key, the first of its queue. The zero value is usable.
type waiters struct {
	mu    sync.Mutex
	woken map[string]chan struct{} // by key; a request for several keys has one channel
}

func (w *waiters) add(keys []string) (woken <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken == nil {
		w.woken = map[string]chan struct{}{}
	}
	c := make(chan struct{}, 1)
	for _, key := range keys {
		w.woken[key] = c
	}
	return c
}

func (w *waiters) remove(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		delete(w.woken, key)
	}
}

// wake makes the waiter for key try again.
func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wake(w.woken[key])
}

// wakeAll makes all waiters try again.
func (w *waiters) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.woken {
		wake(c)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // no waiter, or it was woken already
	}
}

// listen receives notifications until Close. While it has no connection, the waiters poll.
func (s *Store) listen() {
	for s.life.Err() == nil {
		_ = s.receive()
		select {
		case <-time.After(s.poll):
		case <-s.life.Done():
		}
	}
}

// receive wakes the waiters whose keys are released, on a connection that it takes out of
// the pool.
func (s *Store) receive() error {
	pooled, err := s.pool.Acquire(s.life)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.requestTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(s.life, `LISTEN pglock`); err != nil {
		return err
	}
	s.waiters.wakeAll() // a key may have been released before
	for {
		released, err := conn.WaitForNotification(s.life)
		if err != nil {
			return err
		}
		s.waiters.wake(released.Payload)
	}
}
