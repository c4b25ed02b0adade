package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Handoff lets the waiters of one process share a session S that has a lock at the server: a holder that releases passes
// it to the next waiter. That is one request less than a release and a grant by the server, and waiters need no session each.
//
// In this process the waiters for a key are granted it in the order of arrival. Other processes get it because a session is passed
// on for one Turn only. Then, or if no session of this process has the key, the first waiter waits at the server. So a
// wait depends for one Turn at most on a session that this process believes to have.
//
// It is safe for concurrent use. A session belongs to one goroutine at a time.
type Handoff[S any] struct {
	Turn time.Duration // from the grant by the server

	mu   sync.Mutex
	keys map[string]*shared[S] // those that a session of this process has, or that are waited for
}

// shared is a key.
type shared[S any] struct {
	held    bool      // a session of this process has it, as far as is known
	granted time.Time // by the server, to that session
	timed   bool      // the end of its turn will be noticed
	waiters []*waiter[S]
}

type waiter[S any] struct {
	session  chan S        // has one if it was passed on; the waiter is then no longer among the waiters
	toServer chan struct{} // closed when it is to wait at the server
	atServer bool          // toServer is closed, or nil: the request found the key neither held nor wanted
}

// Acquire waits for key until a session is passed on, or until it may request one at the server with take.
//
// If ctx ends first, the error matches ctx.Err(), and ErrBusy too if the request was in the queue.
func (h *Handoff[S]) Acquire(ctx context.Context, key string, take func() (S, error)) (S, error) {
	w, queued := h.join(key)
	if queued {
		select {
		case session := <-w.session:
			return session, nil
		case <-w.toServer:
		case <-ctx.Done():
			if h.leave(key, w) {
				var none S
				return none, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
			}
			return <-w.session, nil // it was passed on at the same time
		}
	}
	session, err := take()
	if err == nil {
		h.Granted(key)
	} else if queued && ctx.Err() != nil && !errors.Is(err, ErrBusy) {
		err = fmt.Errorf("%w: %w: %w", ErrBusy, ctx.Err(), err)
	}
	h.leave(key, w)
	return session, err
}

// Granted notes that the server has granted key to a session of this process. Acquire calls it.
func (h *Handoff[S]) Granted(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.key(key)
	k.held, k.granted = true, time.Now()
}

// Wanted reports whether Pass would find a waiter.
func (h *Handoff[S]) Wanted(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next(key) != nil
}

// Pass gives session, which has key, to the first waiter. The caller has made sure that it still has the key. False: no request waits for it
// here, or the turn of this process is over, and the session stays with the caller.
func (h *Handoff[S]) Pass(key string, session S) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.next(key)
	if w == nil {
		return false
	}
	h.remove(key, 0)
	w.session <- session
	return true
}

// Ending notes that a session of this process gives key up, or has lost it. Call it before the request that releases the
// key, so that it does not come after Granted of the next holder.
func (h *Handoff[S]) Ending(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.keys[key]; k != nil {
		k.held = false
		h.settle(key, k)
	}
}

// next returns the waiter to whom a session can be passed. One that waits at the server cannot take it.
func (h *Handoff[S]) next(key string) *waiter[S] {
	k := h.keys[key]
	if k == nil || len(k.waiters) == 0 || k.waiters[0].atServer || time.Since(k.granted) >= h.Turn {
		return nil
	}
	return k.waiters[0]
}

func (h *Handoff[S]) key(key string) *shared[S] {
	k := h.keys[key]
	if k == nil {
		if h.keys == nil {
			h.keys = map[string]*shared[S]{}
		}
		k = &shared[S]{}
		h.keys[key] = k
	}
	return k
}

// join adds a waiter. queued: it does not go to the server at once.
func (h *Handoff[S]) join(key string) (_ *waiter[S], queued bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.key(key)
	w := &waiter[S]{atServer: !k.held && len(k.waiters) == 0}
	k.waiters = append(k.waiters, w)
	if !w.atServer {
		w.session, w.toServer = make(chan S, 1), make(chan struct{})
		h.settle(key, k)
	}
	return w, !w.atServer
}

// leave removes w. False: a session was passed to it.
func (h *Handoff[S]) leave(key string, w *waiter[S]) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	if k == nil {
		return false
	}
	i := slices.Index(k.waiters, w)
	if i >= 0 {
		h.remove(key, i)
	}
	return i >= 0
}

func (h *Handoff[S]) remove(key string, i int) {
	k := h.keys[key]
	k.waiters = slices.Delete(k.waiters, i, i+1)
	h.settle(key, k)
}

// settle sends the first waiter to the server if no session can be passed to it, and forgets a key that is neither held
// nor wanted.
func (h *Handoff[S]) settle(key string, k *shared[S]) {
	if len(k.waiters) == 0 {
		if !k.held {
			delete(h.keys, key)
		}
		return
	}
	switch turn := time.Since(k.granted); {
	case !k.held || turn >= h.Turn:
		if w := k.waiters[0]; !w.atServer {
			w.atServer = true
			close(w.toServer)
		}
	case !k.timed:
		k.timed = true
		time.AfterFunc(h.Turn-turn, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.keys[key] == k {
				k.timed = false
				h.settle(key, k)
			}
		})
	}
}
