// SPDX-License-Identifier: MIT

package driver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"shop/locking"
)

var _ locking.Waiter = (*Store)(nil)

// Store is a locking.Store of a Driver. It is safe for concurrent use. Its owner closes the client of the driver, after the Store.
type Store struct {
	driver Driver
	o      Options
	trust  time.Duration // of a lease, from the sending of its request
	line   locking.Line[string]
	ears   ears
	back   background
	silent atomic.Bool // the last request had no answer

	mu   sync.Mutex
	held map[string]*holder // by Lease.Owner: those that have a place in the line
}

// holder is a lease with a place in the line.
type holder struct {
	place *locking.Place[string]
	until time.Time
	end   *time.Timer // at Until; nil: it has none
}

// Check returns locking.ErrTTL if the server would round the TTL, and locking.ErrKey for a Prefix that no key may have.
func (o Options) Check() error {
	if o.TTL < o.TTLMin || o.TTLUnit > 0 && o.TTL%o.TTLUnit != 0 {
		return fmt.Errorf("%s: %w: %v: it must be a multiple of %v, and at least %v", o.Name, locking.ErrTTL, o.TTL, o.TTLUnit, o.TTLMin)
	}
	if o.TTL == 0 && o.Limit <= 0 {
		return fmt.Errorf("%s: a Store without a TTL needs a Limit", o.Name)
	}
	return o.checkPrefix()
}

// New makes a Store.
func New(d Driver, o Options) (*Store, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Limit = cmp.Or(o.Limit, DefaultLimit(o.TTL))
	s := &Store{driver: d, o: o, trust: cmp.Or(o.Trust, o.TTL-DefaultMargin(o.TTL)), held: map[string]*holder{}}
	s.line.Turn, s.line.Gap = o.Turn, o.Gap
	s.back.life, s.back.end = context.WithCancel(context.Background())
	return s, nil
}

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holder has one of them, or a request of this
// Store has a place in its line.
//
// A request without an answer is sent again, as the same owner, for at most half the TTL. If no answer comes, or ctx ends
// first, the error matches locking.ErrOutcomeUnknown, and what the request may have taken is freed in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (l locking.Lease, err error) {
	defer s.describe(&err, "acquire", keys)
	if keys, err = s.check(ctx, keys); err != nil {
		return l, err
	}
	place, free := s.tryEnter(keys)
	if !free {
		return l, errInFront
	}
	if l, _, err = s.take(ctx, keys, rand.Text(), false); err != nil {
		leave(place)
		return locking.Lease{}, err
	}
	s.hold(l, place)
	return l, nil
}

// A Store with tickets has no line.

func (s *Store) tryEnter(keys []string) (place *locking.Place[string], free bool) {
	if s.o.Tickets {
		return nil, true
	}
	return s.line.TryEnter(keys...)
}

func (s *Store) enter(ctx context.Context, keys []string) (*locking.Place[string], error) {
	if s.o.Tickets {
		return nil, nil
	}
	return s.line.Enter(ctx, nil, keys...)
}

func leave(place *locking.Place[string]) {
	if place != nil {
		place.Leave()
	}
}

// Acquire waits for all keys: in this process in the order of arrival, among the processes as the driver's documentation says.
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if another holder had a key, or another request of
// this process waited for it in front.
func (s *Store) Acquire(ctx context.Context, keys ...string) (l locking.Lease, err error) {
	defer s.describe(&err, "acquire", keys)
	if keys, err = s.check(ctx, keys); err != nil {
		return l, err
	}
	left, open := s.back.join() // Close waits until it has left its queue
	if !open {
		return l, locking.ErrClosed
	}
	defer left()
	waiting, stop := s.back.under(ctx)
	defer stop()
	place, err := s.enter(waiting, keys)
	if err == nil {
		if l, err = s.wait(waiting, place, keys); err == nil {
			s.hold(l, place)
			return l, nil
		}
		leave(place)
	} else {
		err = busy(ctx, errInFront)
	}
	if s.back.closed() {
		err = locking.ErrClosed
	}
	return locking.Lease{}, err
}

// errInFront is the error of a request that has not asked the server.
var errInFront = locking.Like(locking.ErrBusy, errors.New("another request of this process has the key, waits for it in front, or leaves it to other processes"))

// wait asks the server until the keys are granted, as the request of this process whose turn it is.
func (s *Store) wait(ctx context.Context, place *locking.Place[string], keys []string) (l locking.Lease, err error) {
	var woken <-chan struct{}
	owner, undone, queued := rand.Text(), false, false // at least 128 random bits
	listens := 1                                       // a release before this request is not missed
	if s.o.Tickets {
		listens = 0
	}
	if s.o.Tickets || s.o.Queues {
		defer func() {
			if err != nil && queued && !undone {
				s.undo(locking.Lease{Keys: keys, Owner: owner})
			}
		}()
	}
	for n := 0; ; n++ {
		if n == listens {
			var deaf func()
			woken, deaf = s.listen(append(s.names(keys), owner))
			defer deaf()
		}
		l, undone, err = s.take(ctx, keys, owner, n > 0 || s.o.Queues || s.o.Tickets)
		if !errors.Is(err, locking.ErrBusy) {
			if err != nil && ctx.Err() != nil && (n > 0 || place != nil && place.Waited) {
				err = busy(ctx, err)
			}
			return l, err
		}
		queued = true
		if undone { // what is freed in the background must not be a later grant. Never so with a ticket, which stays
			owner = rand.Text()
		}
		s.line.Seen(keys...)
		if ctx.Err() != nil {
			return l, busy(ctx, err)
		}
		if n == 0 && s.hears() && !s.o.Tickets {
			continue
		}
		select {
		case <-woken:
			Pause(ctx, locking.Backoff{Base: jitter, Max: jitter}.Wait(0))
		case <-time.After(s.o.Pause.Wait(n / equalPauses)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return l, busy(ctx, err)
		}
	}
}

const (
	// equalPauses is how many pauses of a wait have one length, before it doubles.
	equalPauses = 16
	// jitter bounds a pause after a message, which comes to the processes in the same order each time: without it the last
	// would always be too late.
	jitter = 300 * time.Microsecond
)

// busy is the error of a waiter whose ctx has ended, with what it knows of the reason.
func busy(ctx context.Context, err error) error {
	why := context.Cause(ctx)
	if !errors.Is(err, locking.ErrBusy) {
		err = fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	if errors.Is(err, why) {
		return err
	}
	if end := ctx.Err(); !errors.Is(why, end) {
		why = fmt.Errorf("%w: %w", end, why)
	}
	return fmt.Errorf("%w: %w", err, why)
}

// check returns the keys in order, unless ctx has ended or they cannot be in one lease.
func (s *Store) check(ctx context.Context, keys []string) ([]string, error) {
	if s.back.closed() {
		return nil, locking.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c, ok := s.driver.(Checker); ok {
		if err := c.Check(ctx); err != nil {
			return nil, err
		}
	}
	keys, err := locking.SortedKeys(keys)
	if err == nil {
		err = s.fits(keys)
	}
	return keys, err
}

// describe adds to an error what failed.
func (s *Store) describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %s %q: %w", s.o.Name, operation, keys, *err)
	}
}

// take requests keys for an owner, until the server has answered. undone: what it may have taken is freed in the background.
func (s *Store) take(ctx context.Context, keys []string, owner string, wait bool) (l locking.Lease, undone bool, _ error) {
	l = locking.Lease{Keys: keys, Owner: owner}
	deadline, unknown := time.Now().Add(s.o.TTL/2), false
	for rest := time.Millisecond; ; rest = min(2*rest, s.o.Limit) {
		sent := time.Now() // before the request: the TTL cannot start earlier
		grant, err := send(s, ctx, wait && s.o.Queues, func(ctx context.Context) (Grant, error) {
			return s.driver.Take(ctx, s.names(keys), owner, wait)
		})
		unknown = unknown || errors.Is(err, locking.ErrOutcomeUnknown)
		if err == nil {
			if l.Fence, l.Until = grant.Fence, grant.Until; s.o.TTL > 0 && l.Until.IsZero() {
				l.Until = sent.Add(s.trust)
			}
			if grant.Mark != "" {
				l.Owner += "/" + grant.Mark
			}
			return l, false, nil
		}
		why := known(err)
		if why.anew {
			deadline = time.Now().Add(s.o.TTL / 2)
		}
		last := errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrClosed) || time.Now().Add(rest).After(deadline)
		switch {
		case !unknown && !why.again:
			if why.unsent && s.o.Queues { // a client that repeats a request tells only of the last time
				s.undo(l)
			}
			return l, false, err
		case !last && Pause(ctx, rest):
			continue
		case s.o.Tickets && wait && errors.Is(err, locking.ErrBusy): // it waits: whatever a late request does, the next one finds
			return l, false, err
		case unknown:
			s.undo(l)
			if !errors.Is(err, locking.ErrBusy) {
				err = NoAnswer(ctx, err)
			}
		default:
			if s.o.Queues {
				s.undo(l)
			}
			if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
		}
		return l, unknown, err
	}
}

// undo frees what requests of an owner may have taken: now, and again when a request that was sent earlier may have
// been executed after that.
func (s *Store) undo(l locking.Lease) {
	l.Fence = 0
	begun := s.back.free(s, l, func() {
		time.AfterFunc(s.o.Limit, func() { s.back.free(s, l, func() {}) })
	})
	if !begun && s.back.closed() && (s.o.Tickets || s.o.Queues) { // nothing starts any more: the waiter leaves the queue itself
		limited, cancel := context.WithTimeout(context.Background(), s.o.Limit)
		defer cancel()
		_ = s.driver.Free(limited, s.named(l))
	}
}

// hold notes that l has a place, until it is released or its Until has come.
func (s *Store) hold(l locking.Lease, place *locking.Place[string]) {
	if place == nil {
		return
	}
	h := &holder{place: place, until: l.Until}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[l.Owner] = h
	if !l.Until.IsZero() {
		h.end = time.AfterFunc(time.Until(l.Until), func() { s.over(l) })
	}
}

// over ends a lease at its Until.
func (s *Store) over(l locking.Lease) {
	if s.leave(l) && s.o.Lasting {
		s.undo(l)
	}
}

// leave gives the place of a lease up. It reports whether the lease had one.
func (s *Store) leave(l locking.Lease) bool {
	s.mu.Lock()
	h := s.held[l.Owner]
	delete(s.held, l.Owner)
	s.mu.Unlock()
	if h == nil {
		return false
	}
	if h.end != nil {
		h.end.Stop()
	}
	h.place.Leave()
	return true
}

// Renew begins the TTL again, on all keys or on none. It returns locking.ErrLost, finally, if
// the lease no longer holds one of them; it never takes a key again. After any other error
// l is as valid as before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer s.describe(&err, "renew", l.Keys)
	if len(l.Keys) == 0 {
		return l, locking.ErrLost
	}
	if s.ended() {
		return l, errEnded
	}
	sent := time.Now()
	_, err = send(s, ctx, false, func(ctx context.Context) (none, error) { return none{}, s.driver.Keep(ctx, s.named(l)) })
	if errors.Is(err, locking.ErrLost) {
		s.over(l)
	}
	if err != nil || s.o.TTL == 0 {
		return l, err
	}
	l.Until = sent.Add(s.trust)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h := s.held[l.Owner]; {
	case h != nil && h.end.Stop():
		if h.until.After(l.Until) { // a renewal that was sent later was answered before
			l.Until = h.until
		}
		h.until = l.Until
		h.end = time.AfterFunc(time.Until(l.Until), func() { s.over(l) })
	case s.o.Lasting: // its end has come meanwhile, and it is being freed
		return l, locking.ErrLost
	}
	return l, nil
}

// errEnded is the error of a lease that Close has ended.
var errEnded = locking.Like(locking.ErrLost, locking.ErrClosed)

// ended reports whether Close has ended all leases, those without a TTL.
func (s *Store) ended() bool { return s.o.TTL == 0 && s.back.closed() }

// Release frees the keys. It returns locking.ErrLost if the lease no longer held one of
// them; the others are freed all the same. After any other error the release is
// repeated in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer s.describe(&err, "release", l.Keys)
	if len(l.Keys) == 0 {
		return locking.ErrLost
	}
	if s.ended() {
		return errEnded
	}
	defer s.leave(l)
	_, err = send(s, ctx, false, func(ctx context.Context) (none, error) { return none{}, s.driver.Free(ctx, s.named(l)) })
	if err != nil && !errors.Is(err, locking.ErrLost) {
		s.back.free(s, locking.Lease{Keys: l.Keys, Owner: l.Owner}, func() {})
	}
	return err
}

// Close ends the background work and waits for it, at most as long as for one answer. Waiters get locking.ErrClosed. It releases
// no leases.
func (s *Store) Close() {
	if s.back.close() {
		if c, ok := s.driver.(Closer); ok {
			c.Close()
		}
	}
}

// Shared reports whether a key has several holders at once: see locking.Nested.
func (s *Store) Shared() bool { return s.o.Shared }

// Limit is how long a request waits for its answer.
func (s *Store) Limit() time.Duration { return s.o.Limit }
