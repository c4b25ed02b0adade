// SPDX-License-Identifier: MIT

// Package faulty makes lock stores that are wrong on purpose, each from a correct one: the contract of package locktest has to
// refuse them. A backend of the contract tests with them that each check notices the defect that it is meant for.
package faulty

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"shop/locking"
)

// Twisted is a Store in which the functions that are not nil replace methods.
type Twisted struct {
	locking.Store
	Try  func(context.Context, []string) (locking.Lease, error)
	Keep func(context.Context, locking.Lease) (locking.Lease, error)
	Free func(context.Context, locking.Lease) error
}

// TryAcquire calls Try.
func (s Twisted) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	if s.Try == nil {
		return s.Store.TryAcquire(ctx, keys...)
	}
	return s.Try(ctx, keys)
}

// Renew calls Keep.
func (s Twisted) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	if s.Keep == nil {
		return s.Store.Renew(ctx, l)
	}
	return s.Keep(ctx, l)
}

// Release calls Free.
func (s Twisted) Release(ctx context.Context, l locking.Lease) error {
	if s.Free == nil {
		return s.Store.Release(ctx, l)
	}
	return s.Free(ctx, l)
}

// TwistedWaiter is a Twisted that is a locking.Waiter. Its Store is one too.
type TwistedWaiter struct {
	Twisted
	Wait func(context.Context, []string) (locking.Lease, error)
}

// Acquire calls Wait.
func (s TwistedWaiter) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.Wait(ctx, keys)
}

// Any adapts a variant of any store to one of the stores S.
func Any[S locking.Store](broken func(locking.Store) locking.Store) func(S) locking.Store {
	return func(s S) locking.Store { return broken(s) }
}

// GrantsHeldKeys grants every request.
func GrantsHeldKeys(s locking.Store, ttl time.Duration) locking.Store {
	return Twisted{Store: s, Try: func(_ context.Context, keys []string) (locking.Lease, error) {
		return locking.Lease{Keys: keys, Owner: "me", Fence: 1, Until: time.Now().Add(ttl)}, nil
	}}
}

// TrustsFromTheAnswer counts Until from the arrival of the answer.
func TrustsFromTheAnswer(s locking.Store, trust time.Duration) locking.Store {
	later := func(l locking.Lease, err error) (locking.Lease, error) {
		l.Until = time.Now().Add(trust)
		return l, err
	}
	return Twisted{
		Store: s,
		Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			return later(s.TryAcquire(ctx, keys...))
		},
		Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) { return later(s.Renew(ctx, l)) },
	}
}

// TrustsTheWallClock returns an Until that a change of the wall clock moves.
func TrustsTheWallClock(s locking.Store) locking.Store {
	return Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys...)
		l.Until = l.Until.Round(0)
		return l, err
	}}
}

// Deaf ignores the end of ctx.
func Deaf(s locking.Store) locking.Store {
	return Twisted{
		Store: s,
		Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			return s.TryAcquire(context.WithoutCancel(ctx), keys...)
		},
		Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			return s.Renew(context.WithoutCancel(ctx), l)
		},
		Free: func(ctx context.Context, l locking.Lease) error { return s.Release(context.WithoutCancel(ctx), l) },
	}
}

// Renames encodes the keys.
func Renames(s locking.Store, encode func(string) string) locking.Store {
	return Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		encoded := make([]string, len(keys))
		for i, k := range keys {
			encoded[i] = encode(k)
		}
		return s.TryAcquire(ctx, encoded...)
	}}
}

// Guesses takes the lack of an answer for one: busy, or lost.
func Guesses(s locking.Store) locking.Store {
	guess := func(err, instead error) error {
		if errors.Is(err, locking.ErrOutcomeUnknown) {
			return instead
		}
		return err
	}
	return Twisted{
		Store: s,
		Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			l, err := s.TryAcquire(ctx, keys...)
			return l, guess(err, locking.ErrBusy)
		},
		Keep: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			l, err := s.Renew(ctx, l)
			return l, guess(err, locking.ErrLost)
		},
		Free: func(ctx context.Context, l locking.Lease) error { return guess(s.Release(ctx, l), locking.ErrLost) },
	}
}

// TakesOneByOne takes key by key, and keeps those it has when the next one is busy.
func TakesOneByOne(s locking.Store) locking.Store {
	return Twisted{Store: s, Try: func(ctx context.Context, keys []string) (all locking.Lease, err error) {
		for _, k := range keys {
			if all, err = s.TryAcquire(ctx, k); err != nil {
				return locking.Lease{}, err
			}
		}
		all.Keys = keys
		return all, nil
	}}
}

// TakesTheFirst takes the first of several keys, and reports all as taken.
func TakesTheFirst(s locking.Store) locking.Store {
	return Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys[:min(1, len(keys))]...)
		l.Keys = keys
		return l, err
	}}
}

// ReleasesNothing reports each release as done.
func ReleasesNothing(s locking.Store) locking.Store {
	return Twisted{Store: s, Free: func(context.Context, locking.Lease) error { return nil }}
}

// RenewsBlindly takes each lease for held, without asking the server.
func RenewsBlindly(s locking.Store) locking.Store {
	return Twisted{Store: s, Keep: func(_ context.Context, l locking.Lease) (locking.Lease, error) { return l, nil }}
}

// NumbersGrants gives each lease the same fence.
func NumbersGrants(s locking.Store) locking.Store {
	return Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys...)
		l.Fence = 1
		return l, err
	}}
}

// Edited returns text with pairs of old and new text replaced, for a broken variant of a script or a
// schema. Each old text must occur once.
func Edited(t testing.TB, text string, edits ...string) string {
	t.Helper()
	for i := 0; i < len(edits); i += 2 {
		if strings.Count(text, edits[i]) != 1 {
			t.Fatalf("%q does not occur exactly once: this variant changes nothing, or too much", edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return text
}
