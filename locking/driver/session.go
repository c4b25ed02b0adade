// SPDX-License-Identifier: MIT

package driver

import (
	"context"
	"errors"
	"sync"

	"shop/locking"
)

// Session is a session of a server, on a connection of its own, that has one lock.
type Session interface {
	// Keep returns locking.ErrLost if the server no longer has the session with its lock. It asks on another connection, so
	// that an answer that is lost costs nothing.
	Keep(ctx context.Context) error

	// Free releases the lock and ends the session. It returns locking.ErrLost if the session had ended before. After
	// any other error there is no session either.
	Free(ctx context.Context) error

	// End ends the session, and with it the lock.
	End()
}

// Sessions is a Driver whose leases are sessions: they have no TTL and no fence, and one key each.
type Sessions[S Session] struct {
	// Open opens a session that has the lock of key. With wait it waits at the server, otherwise it returns locking.ErrBusy
	// if another session has it. After an error there is no session.
	Open func(ctx context.Context, key string, wait bool) (S, error)

	mu     sync.Mutex
	held   map[string]S // by owner
	closed bool
}

// Take opens a session.
func (d *Sessions[S]) Take(ctx context.Context, keys []string, owner string, wait bool) (Grant, error) {
	s, err := d.Open(ctx, keys[0], wait)
	if err != nil {
		return Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		go s.End()
		return Grant{}, locking.ErrClosed
	case ctx.Err() != nil: // no caller waits for it
		go s.End()
		return Grant{}, ctx.Err()
	}
	if d.held == nil {
		d.held = map[string]S{}
	}
	d.held[owner] = s
	return Grant{}, nil
}

// Keep is Keep of the lease's session. One that is lost is ended.
func (d *Sessions[S]) Keep(ctx context.Context, l locking.Lease) error {
	s, held := d.Of(l)
	if !held {
		return locking.ErrLost
	}
	err := s.Keep(ctx)
	if errors.Is(err, locking.ErrLost) {
		if _, once := d.remove(l); once {
			s.End()
		}
	}
	return err
}

// Free is Free of the lease's session.
func (d *Sessions[S]) Free(ctx context.Context, l locking.Lease) error {
	s, held := d.remove(l)
	if !held {
		return locking.ErrLost
	}
	return s.Free(ctx)
}

// Close ends all sessions.
func (d *Sessions[S]) Close() {
	d.mu.Lock()
	held := d.held
	d.held, d.closed = nil, true
	d.mu.Unlock()
	for _, s := range held {
		s.End()
	}
}

// Of returns the session of a lease. False: the lease is not held.
func (d *Sessions[S]) Of(l locking.Lease) (s S, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, held = d.held[l.Owner]
	return s, held
}

func (d *Sessions[S]) remove(l locking.Lease) (s S, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, held = d.held[l.Owner]
	delete(d.held, l.Owner)
	return s, held
}
