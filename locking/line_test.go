package locking_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// forgetful is a server with a TTL, behind a line that delays and loses.
type forgetful struct {
	mu      sync.Mutex
	line    *rand.Rand
	expires time.Time // at the server
}

// grant sets the TTL, if the lease is still known.
func (f *forgetful) grant() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !time.Now().Before(f.expires) {
		return locking.ErrLost
	}
	f.expires = time.Now().Add(ttl)
	return nil
}

// forgotten is for how long it has been unknown.
func (f *forgetful) forgotten() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.expires)
}

// ask sends a request over the line; do is what the server does with it.
func (f *forgetful) ask(ctx context.Context, do func() error) error {
	there, back, lost := f.line.IntN(1500), f.line.IntN(1000), f.line.IntN(20)
	if lost < 2 {
		return silent(ctx, 0) // the request
	}
	if err := work(ctx, time.Duration(there)*time.Millisecond); err != nil {
		return err
	}
	err := do()
	if lost == 2 {
		return silent(ctx, 0) // the answer
	}
	if cut := work(ctx, time.Duration(back)*time.Millisecond); cut != nil {
		return cut
	}
	return err
}

func (f *forgetful) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	f.expires = time.Now().Add(ttl)
	return locking.Lease{Keys: keys, Until: f.expires}, nil
}

func (f *forgetful) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	sent := time.Now()
	err := f.ask(ctx, f.grant)
	l.Until = sent.Add(ttl)
	return l, err
}

func (f *forgetful) Release(context.Context, locking.Lease) error { return nil }

// Whatever the line does, fn's ctx has ended when the server forgets the lease.
// The seeds make 500 different lines.
func TestDo_EndsTheTrustBeforeTheServerForgets(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(500) {
		synctest.Test(t, func(t *testing.T) {
			f := &forgetful{line: rand.New(rand.NewPCG(seed, 0))}
			err := locking.Do(t.Context(), f, locking.Options{}, one, func(ctx context.Context, _ locking.Lease) error {
				err := work(ctx, 50*time.Second)
				if late := f.forgotten(); late > 0 {
					t.Errorf("line %d: fn went on for %v after the server had forgotten", seed, late)
				}
				return err
			})
			switch {
			case err == nil:
				kept++
			case errors.Is(err, locking.ErrLost):
				lost++
			default:
				t.Errorf("line %d: %v", seed, err)
			}
		})
	}
	if kept < 50 || lost < 50 {
		t.Errorf("kept %d, lost %d: the lines are too good or too bad to show anything", kept, lost)
	}
}
