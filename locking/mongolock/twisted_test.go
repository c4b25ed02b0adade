package mongolock

import (
	"context"
	"errors"
	"time"

	"shop/locking"
)

// trustsFromTheAnswer counts Until from when the answer came.
func trustsFromTheAnswer(s *Store) locking.Store {
	later := func(l locking.Lease, err error) (locking.Lease, error) {
		l.Until = time.Now().Add(s.trust)
		return l, err
	}
	return twisted{
		Store: s,
		try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			return later(s.TryAcquire(ctx, keys...))
		},
		renew: func(ctx context.Context, l locking.Lease) (locking.Lease, error) { return later(s.Renew(ctx, l)) },
	}
}

// trustsTheWallClock gives an Until that a change of the clock changes.
func trustsTheWallClock(s *Store) locking.Store {
	return twisted{Store: s, try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys...)
		l.Until = l.Until.Round(0)
		return l, err
	}}
}

// deaf does not hear that ctx ended.
func deaf(s *Store) locking.Store {
	return twisted{
		Store: s,
		try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			return s.TryAcquire(context.WithoutCancel(ctx), keys...)
		},
		renew: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			return s.Renew(context.WithoutCancel(ctx), l)
		},
		release: func(ctx context.Context, l locking.Lease) error { return s.Release(context.WithoutCancel(ctx), l) },
	}
}

// renames makes a store that takes keys through an encoding.
func renames(encode func(string) string) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return twisted{Store: s, try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			encoded := make([]string, len(keys))
			for i, k := range keys {
				encoded[i] = encode(k)
			}
			return s.TryAcquire(ctx, encoded...)
		}}
	}
}

// guesses takes silence for an answer: busy, or lost.
func guesses(s *Store) locking.Store {
	guess := func(err, instead error) error {
		if errors.Is(err, locking.ErrOutcomeUnknown) {
			return instead
		}
		return err
	}
	return twisted{
		Store: s,
		try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			l, err := s.TryAcquire(ctx, keys...)
			return l, guess(err, locking.ErrBusy)
		},
		renew: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			l, err := s.Renew(ctx, l)
			return l, guess(err, locking.ErrLost)
		},
		release: func(ctx context.Context, l locking.Lease) error { return guess(s.Release(ctx, l), locking.ErrLost) },
	}
}
