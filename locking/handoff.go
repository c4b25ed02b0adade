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
	held     bool      // a session of this process has it, as far as is known
	granted  time.Time // by the server, to that session
	timed    bool      // the end of its turn will be noticed
	atServer bool      // a request of this process asks or waits for it at the server
	waiters  []waiter[S]
}

// waiter waits in this process. It receives a session that is passed on, or is closed: then its request goes to take. With that
// it is no longer among the waiters.
type waiter[S any] chan S

// Acquire waits for key until a session is passed on, or until it may request one at the server with take.
//
// If ctx ends first, the error matches ctx.Err(), and ErrBusy too if the request was in the queue.
func (h *Handoff[S]) Acquire(ctx context.Context, key string, take func() (S, error)) (session S, err error) {
	w := h.join(key)
	if w != nil {
		var passed bool
		select {
		case session, passed = <-w:
		case <-ctx.Done():
			if h.leave(key, w) {
				return session, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
			}
			session, passed = <-w
		}
		if passed {
			return session, nil
		}
	}
	session, err = take()
	h.answered(key, err == nil)
	if err != nil && w != nil && ctx.Err() != nil && !errors.Is(err, ErrBusy) {
		err = fmt.Errorf("%w: %w: %w", ErrBusy, ctx.Err(), err)
	}
	return session, err
}

// Granted notes that the server has granted key to a session of this process. Acquire does so itself.
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
	return h.passable(key) != nil
}

// Pass gives session, which has key, to the first waiter. The caller has made sure that it still has the key. False: no request waits for it
// here, or the turn of this process is over, and the session stays with the caller.
func (h *Handoff[S]) Pass(key string, session S) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.passable(key)
	if k == nil {
		return false
	}
	k.pop() <- session
	return true
}

// Ending notes that a session of this process gives key up, or has lost it. Call it before the request that releases the
// key, so that it does not come after the grant to the next holder.
func (h *Handoff[S]) Ending(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.keys[key]; k != nil {
		k.held = false
		h.settle(key, k)
	}
}

// passable returns the key if a session can be passed to its first waiter. It cannot while a request that came before is at the server.
func (h *Handoff[S]) passable(key string) *shared[S] {
	k := h.keys[key]
	if k == nil || len(k.waiters) == 0 || k.atServer || time.Since(k.granted) >= h.Turn {
		return nil
	}
	return k
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

// join adds a waiter. nil: the key is neither held nor wanted, and the request goes to the server at once.
func (h *Handoff[S]) join(key string) waiter[S] {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.key(key)
	if !k.held && !k.atServer {
		k.atServer = true
		return nil
	}
	w := make(waiter[S], 1)
	k.waiters = append(k.waiters, w)
	h.settle(key, k)
	return w
}

// answered notes the answer of the server to the request that was there.
func (h *Handoff[S]) answered(key string, granted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	k.atServer = false
	if granted {
		k.held, k.granted = true, time.Now()
	}
	h.settle(key, k)
}

// leave removes w. False: it is no longer a waiter.
func (h *Handoff[S]) leave(key string, w waiter[S]) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	if k == nil {
		return false
	}
	i := slices.Index(k.waiters, w)
	if i >= 0 {
		k.waiters = slices.Delete(k.waiters, i, i+1) // the key stays: it is held, or a request is at the server
	}
	return i >= 0
}

// pop removes the first waiter.
func (k *shared[S]) pop() waiter[S] {
	w := k.waiters[0]
	k.waiters = slices.Delete(k.waiters, 0, 1)
	return w
}

// settle sends the first waiter to the server if no session can be passed to it, and forgets a key that is neither held
// nor wanted.
func (h *Handoff[S]) settle(key string, k *shared[S]) {
	if len(k.waiters) == 0 {
		if !k.held && !k.atServer {
			delete(h.keys, key)
		}
		return
	}
	switch turn := time.Since(k.granted); {
	case k.atServer:
	case !k.held || turn >= h.Turn:
		k.atServer = true
		close(k.pop())
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
