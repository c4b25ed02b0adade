package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

var _ locking.Store = (*Store)(nil)

// Store keeps a lock on a majority of independent Redis servers. It is safe for
// concurrent use.
type Store struct {
	servers        []*redis.Client
	quorum         int // a majority of the servers
	prefix         string
	ttl            time.Duration
	trust          time.Duration // the TTL less the drift of clocks
	requestTimeout time.Duration // for one answer
	do             commands
	resolver       *locking.Resolver
}

// ErrSeveralKeys reports a request for several keys in one lease. The algorithm is defined
// for one key.
var ErrSeveralKeys = errors.New("redlock: a lease has one key")

// lock is a lock as the servers see it.
type lock struct{ name, owner string }

func (s *Store) lock(key, owner string) lock { return lock{s.prefix + ":" + key, owner} }

// TryAcquire takes one key on a majority of the servers. The numbers are those of the
// steps in the Redis manual.
//
// It returns locking.ErrBusy if a majority answered and another owner has the key on one of
// them. If fewer servers answered, the error is another one; it matches
// locking.ErrOutcomeUnknown if a server may have taken the key without an answer. After
// each error the key is released on all servers, in the background where a server does
// not answer.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (_ locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if err := ctx.Err(); err != nil {
		return locking.Lease{}, err
	}
	if keys, err = locking.SortedKeys(keys); err != nil {
		return locking.Lease{}, err
	}
	if len(keys) > 1 {
		return locking.Lease{}, ErrSeveralKeys
	}
	l := s.lock(keys[0], rand.Text()) // at least 128 random bits
	start := time.Now()               // 1
	request := s.ask(s.do.acquire, l) // 2
	v, err := request.wait(ctx)
	elapsed := time.Since(start) // 3
	if err == nil && v.yes >= s.quorum && elapsed < s.trust {
		return locking.Lease{Keys: keys, Owner: l.owner, Until: start.Add(s.trust)}, nil // 4
	}
	s.undo(ctx, request, l) // 5
	switch {
	case err != nil:
		return locking.Lease{}, err
	case v.yes >= s.quorum:
		return locking.Lease{}, s.tooLate(elapsed)
	case v.no > 0 && v.yes+v.no >= s.quorum:
		return locking.Lease{}, locking.ErrBusy
	}
	return locking.Lease{}, s.noMajority(ctx, v)
}

// tooLate is the error of a grant whose validity, the TTL less elapsed and drift, is over.
// Only a pause of this process takes that long.
func (s *Store) tooLate(elapsed time.Duration) error {
	return fmt.Errorf("granted after %v, and valid for only %v", elapsed, s.trust)
}

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("redlock: %s %q: %w", operation, keys, *err)
	}
}

// undo deletes what a failed request to acquire may have taken, on all servers. It leaves
// to the background what is not deleted when ctx ends or after the time-out of a request.
func (s *Store) undo(ctx context.Context, failed *request, l lock) {
	remove := func(ctx context.Context) error {
		<-failed.done // a server must not run the deletion before the request that it undoes
		return s.remove(ctx, l)
	}
	if ctx.Err() != nil || remove(ctx) != nil {
		s.resolver.Abandon(remove)
	}
}

// remove deletes l on all servers. It returns an error if it is unknown whether a server
// still has it.
func (s *Store) remove(ctx context.Context, l lock) error {
	v, err := s.ask(s.do.release, l).wait(ctx)
	if err == nil && v.unknown > 0 {
		err = s.noMajority(ctx, v)
	}
	return err
}

// Renew restarts the TTL on a majority of the servers. It returns locking.ErrLost, finally,
// if so many servers no longer have the lock that the others are no majority; these are
// released. After any other error l is as valid as before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	if len(l.Keys) != 1 {
		return l, locking.ErrLost
	}
	start, held := time.Now(), s.lock(l.Keys[0], l.Owner)
	request := s.ask(s.do.renew, held)
	v, err := request.wait(ctx)
	switch {
	case err != nil:
		return l, err
	case v.yes >= s.quorum:
		if elapsed := time.Since(start); elapsed >= s.trust {
			return l, s.tooLate(elapsed)
		}
		l.Until = start.Add(s.trust)
		return l, nil
	case s.lost(v):
		s.undo(ctx, request, held)
		return l, locking.ErrLost
	}
	return l, s.noMajority(ctx, v)
}

// lost reports whether the servers that did not deny the lock are no majority.
func (s *Store) lost(v votes) bool { return len(s.servers)-v.no < s.quorum }

// Release deletes the lock on all servers. It returns locking.ErrLost if so many servers no
// longer had it that the others are no majority. Where a server does not answer, the
// deletion is retried in the background. A server that cannot be reached keeps the lock until its TTL ends.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	if len(l.Keys) != 1 {
		return locking.ErrLost
	}
	held := s.lock(l.Keys[0], l.Owner)
	v, err := s.ask(s.do.release, held).wait(ctx)
	if err != nil || v.unknown > 0 {
		s.resolver.Abandon(func(ctx context.Context) error { return s.remove(ctx, held) })
	}
	switch {
	case err != nil:
		return err
	case v.yes >= s.quorum:
		return nil
	case s.lost(v):
		return locking.ErrLost
	}
	return s.noMajority(ctx, v)
}

// Close ends the background work, waits for it, at most as long as for one answer, and
// closes the connections. It releases no locks.
func (s *Store) Close() {
	s.resolver.Close()
	for _, server := range s.servers {
		_ = server.Close()
	}
}
