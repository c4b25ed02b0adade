package locking

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Session is a session of a server, on a connection of its own, that has one lock.
type Session interface {
	// Renew returns ErrLost, finally, if the server no longer has the session with its lock. It asks on
	// another connection, so that an answer that is lost costs nothing. After any other error the lock may be held or not.
	Renew(ctx context.Context) error

	// Check returns nil if the session still has its lock. It asks on the session's own connection, whose
	// end is ErrLost.
	Check(ctx context.Context) error

	// Unlock releases the lock and ends the session. It returns ErrLost if the session had ended before.
	// Any other error leaves no session either.
	Unlock(ctx context.Context) error

	// End ends the session, and with it the lock.
	End()
}

// Sessions is what Stores have in common whose leases are sessions of a server: the request for a key, the leases
// that are held, the waiters, to whom a session is passed on (Handoff), and the end of all. It is safe for concurrent use.
type Sessions[S Session] struct {
	Handoff Handoff[S]
	take    func(ctx context.Context, key string, wait bool) (S, error)
	closed  error
	id      string          // begins the owners of its leases
	granted atomic.Uint64   // leases so far
	life    context.Context // ends with Close
	end     context.CancelFunc

	mu   sync.Mutex
	held map[string]keyed[S] // by Lease.Owner; nil after Close
}

// keyed is the session of a lease.
type keyed[S Session] struct {
	key     string
	session S
}

// NewSessions makes a Sessions. The sessions of a process are passed on for one turn at a time. take requests a lock
// at the server. Without wait it returns ErrBusy if another session has the lock. closed is the error after Close.
func NewSessions[S Session](turn time.Duration, closed error, take func(ctx context.Context, key string, wait bool) (S, error)) *Sessions[S] {
	s := &Sessions[S]{id: rand.Text(), take: take, closed: closed, Handoff: Handoff[S]{Turn: turn}, held: map[string]keyed[S]{}}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// UntilClose returns a ctx that ends with Close too: for a request that waits, at the server or for a connection. The others need none.
func (s *Sessions[S]) UntilClose(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// Acquire takes the one key, or with wait waits for it, in this process in the order of arrival.
func (s *Sessions[S]) Acquire(ctx context.Context, keys []string, wait bool) (_ Lease, err error) {
	key, err := OneKey(keys)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return Lease{}, err
	}
	defer func() {
		if err != nil && s.life.Err() != nil {
			err = s.closed
		}
	}()
	var session S
	if wait {
		session, err = s.Handoff.Acquire(ctx, key, func() (S, error) { return s.request(ctx, key, wait) })
	} else if session, err = s.request(ctx, key, wait); err == nil {
		s.Handoff.Granted(key)
	}
	if err != nil {
		return Lease{}, err
	}
	l := Lease{Keys: []string{key}, Owner: s.id + "-" + strconv.FormatUint(s.granted.Add(1), 10)}
	if !s.add(l.Owner, keyed[S]{key, session}) {
		s.lose(key, session)
		return Lease{}, s.closed
	}
	return l, nil
}

func (s *Sessions[S]) request(ctx context.Context, key string, wait bool) (session S, err error) {
	if s.life.Err() != nil {
		return session, s.closed
	}
	return s.take(ctx, key, wait)
}

// Renew is Renew of the lease's session. A session that is lost is ended.
func (s *Sessions[S]) Renew(ctx context.Context, l Lease) error {
	x, held := s.find(l, false)
	if !held {
		return ErrLost
	}
	err := x.session.Renew(ctx)
	if errors.Is(err, ErrLost) {
		if x, once := s.find(l, true); once {
			s.lose(x.key, x.session)
		}
	}
	return err
}

// Release passes the lease's session on to the next waiter of this process, if there is one and the turn is not over, or
// releases the lock at the server. It returns ErrLost if the session had ended before. After any other error the
// session is ended, which frees the key as well.
func (s *Sessions[S]) Release(ctx context.Context, l Lease) error {
	x, held := s.find(l, true)
	if !held {
		return ErrLost
	}
	if s.Handoff.Wanted(x.key) {
		if err := x.session.Check(ctx); err != nil {
			s.lose(x.key, x.session)
			return err
		}
		if s.Handoff.Pass(x.key, x.session) {
			return nil
		}
	}
	s.Handoff.Ending(x.key)
	return x.session.Unlock(ctx)
}

// Close ends the sessions of all leases that are still held, and the waiters.
func (s *Sessions[S]) Close() {
	s.end()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.held))
	s.held = nil
	s.mu.Unlock()
	for _, x := range all {
		s.lose(x.key, x.session)
	}
}

// Get returns the session of a lease. False: the lease is not held.
func (s *Sessions[S]) Get(l Lease) (_ S, held bool) {
	x, held := s.find(l, false)
	return x.session, held
}

// lose ends a session that has, or had, the lock.
func (s *Sessions[S]) lose(key string, session S) {
	s.Handoff.Ending(key)
	session.End()
}

func (s *Sessions[S]) add(owner string, x keyed[S]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return false
	}
	s.held[owner] = x
	return true
}

// find returns the session of a lease. With remove it does so once.
func (s *Sessions[S]) find(l Lease, remove bool) (x keyed[S], held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, held = s.held[l.Owner]
	if remove {
		delete(s.held, l.Owner)
	}
	return x, held
}

// ErrOneKey reports a request for several keys in one lease of a Store whose leases have one.
var ErrOneKey = errors.New("locking: a lease of this store has one key")

// OneKey checks the keys of a request, of a Store whose leases have one key.
func OneKey(keys []string) (string, error) {
	if err := CheckKeys(keys); err != nil {
		return "", err
	}
	for _, key := range keys {
		if key != keys[0] {
			return "", ErrOneKey
		}
	}
	return keys[0], nil
}
