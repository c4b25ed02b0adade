// SPDX-License-Identifier: MIT

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

// forgetful is a server with a TTL, behind a network that delays and loses messages.
type forgetful struct {
	mu      sync.Mutex
	network *rand.Rand
	expires time.Time // at the server
}

// grant restarts the TTL, unless the lease has expired.
func (f *forgetful) grant() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !time.Now().Before(f.expires) {
		return locking.ErrLost
	}
	f.expires = time.Now().Add(ttl)
	return nil
}

// expired is the time since the lease expired; negative: it is still valid.
func (f *forgetful) expired() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.expires)
}

// send sends a request over the network; do is its effect at the server.
func (f *forgetful) send(ctx context.Context, do func() error) error {
	there, back, lost := f.network.IntN(1500), f.network.IntN(1000), f.network.IntN(20)
	if lost < 2 {
		return silent(ctx, 0) // the request is lost
	}
	if err := work(ctx, time.Duration(there)*time.Millisecond); err != nil {
		return err
	}
	err := do()
	if lost == 2 {
		return silent(ctx, 0) // the answer is lost
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
	err := f.send(ctx, f.grant)
	l.Until = sent.Add(ttl)
	return l, err
}

func (f *forgetful) Release(context.Context, locking.Lease) error { return nil }

// Whatever is delayed or lost, fn's ctx has ended when the lease expires at the server.
// Each of the 500 seeds makes a different network.
func TestDo_EndsTheTrustBeforeTheLeaseExpiresAtTheServer(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(500) {
		synctest.Test(t, func(t *testing.T) {
			f := &forgetful{network: rand.New(rand.NewPCG(seed, 0))}
			err := locking.Do(t.Context(), f, locking.Options{}, one, func(ctx context.Context, _ locking.Lease) error {
				err := work(ctx, 50*time.Second)
				if late := f.expired(); late > 0 {
					t.Errorf("network %d: fn continued for %v after the lease had expired", seed, late)
				}
				return err
			})
			switch {
			case err == nil:
				kept++
			case errors.Is(err, locking.ErrLost):
				lost++
			default:
				t.Errorf("network %d: %v", seed, err)
			}
		})
	}
	if kept < 50 || lost < 50 {
		t.Errorf("kept %d, lost %d leases, want at least 50 of each", kept, lost)
	}
}
