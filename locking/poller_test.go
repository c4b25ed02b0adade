package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// polledKey is a key of a server that wakes no waiter, and the requests for it.
type polledKey struct {
	mu       sync.Mutex
	held     bool
	requests int
}

func (k *polledKey) take() (Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests++
	if k.held {
		return Lease{}, ErrBusy
	}
	k.held = true
	return Lease{Owner: "me"}, nil
}

func (k *polledKey) release(p *Poller) {
	k.mu.Lock()
	k.held = false
	k.mu.Unlock()
	p.Released([]string{"k"})
}

// hourly pauses for an hour, so that only a release in the process can end a wait earlier.
func hourly() *Poller {
	return &Poller{Turn: time.Minute, Pause: Backoff{Base: time.Hour, Max: time.Hour, Rand: func() float64 { return 1 }}}
}

// wantForgotten fails the test if a key is still known after Turn.
func wantForgotten(t *testing.T, p *Poller) {
	t.Helper()
	time.Sleep(p.Turn)
	synctest.Wait()
	if len(p.keys) != 0 {
		t.Errorf("%d keys are left", len(p.keys))
	}
}

// Each release is followed by one request, of the waiter that came first.
func TestPoller_AReleaseWakesTheWaiterThatCameFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := hourly(), &polledKey{held: true}
		var order []int
		start := time.Now()
		for i := range 5 {
			go func() {
				if _, err := p.Acquire(t.Context(), []string{"k"}, k.take); err != nil {
					t.Error(err)
				}
				order = append(order, i)
			}()
			synctest.Wait()
		}
		for n := range 5 {
			if len(order) != n || k.requests != n+1 || p.Len("k") != 5-n {
				t.Fatalf("before release %d: granted %v, %d requests, %d in the queue", n, order, k.requests, p.Len("k"))
			}
			k.release(p)
			synctest.Wait()
		}
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) || time.Since(start) != 0 {
			t.Errorf("granted %v after %v", order, time.Since(start))
		}
		wantForgotten(t, p)
	})
}

// The holder releases after its grant and before the next waiter listens: the release is not lost.
func TestPoller_AReleaseIsRememberedUntilTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := hourly(), &polledKey{held: true}
		start := time.Now()
		for range 2 {
			go func() {
				if _, err := p.Acquire(t.Context(), []string{"k"}, k.take); err != nil {
					t.Error(err)
				}
				k.release(p) // in the same step as the grant
			}()
		}
		synctest.Wait()
		k.release(p)
		synctest.Wait()
		if k.requests != 3 || p.Len("k") != 0 || time.Since(start) != 0 {
			t.Errorf("%d requests, %d in the queue after %v", k.requests, p.Len("k"), time.Since(start))
		}
	})
}

// After its turn a process pauses, and a process that polls can come first. It makes no difference whether all requests
// wait from the beginning, or none waits at the moment of a grant.
func TestPoller_ATurnEnds(t *testing.T) {
	for name, test := range map[string]struct{ clients, requests int }{"a queue": {6, 1}, "in turns": {2, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, k := hourly(), &polledKey{}
				start := time.Now()
				var grants []time.Duration
				for range test.clients {
					go func() {
						for range test.requests {
							if _, err := p.Acquire(t.Context(), []string{"k"}, k.take); err != nil {
								t.Error(err)
							}
							k.mu.Lock()
							grants = append(grants, time.Since(start))
							k.mu.Unlock()
							time.Sleep(25 * time.Second)
							k.release(p)
						}
					}()
					synctest.Wait()
				}
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				// The third release, after 75 s, is not within a minute of the first grant. So the fourth request ends its
				// pause, which it began after 50 s, and begins the next turn.
				next := 50*time.Second + time.Hour
				want := []time.Duration{0, 25 * time.Second, 50 * time.Second, next, next + 25*time.Second, next + 50*time.Second}
				if !slices.Equal(grants, want) {
					t.Errorf("granted after %v, want %v", grants, want)
				}
			})
		})
	}
}

// A holder that keeps the key for longer than a turn wakes the next one all the same: no grant of this turn has
// followed a release.
func TestPoller_TheFirstReleaseOfATurnWakesAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := hourly(), &polledKey{}
		start := time.Now()
		for range 2 {
			go func() {
				if _, err := p.Acquire(t.Context(), []string{"k"}, k.take); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Minute)
				k.release(p)
			}()
			synctest.Wait()
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if k.requests != 3 || p.Len("k") != 0 { // the second begins with one that is refused
			t.Errorf("%d requests, %d in the queue after %v", k.requests, p.Len("k"), time.Since(start))
		}
	})
}

// A request for several keys pauses. It keeps its place before requests for one of them.
func TestPoller_ARequestForSeveralKeysIsNotWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := hourly(), &polledKey{held: true}
		start := time.Now()
		var both, one time.Duration
		go func() {
			if _, err := p.Acquire(t.Context(), []string{"j", "k"}, k.take); err != nil {
				t.Error(err)
			}
			both = time.Since(start)
			k.release(p)
		}()
		synctest.Wait()
		go func() {
			if _, err := p.Acquire(t.Context(), []string{"k"}, k.take); err != nil {
				t.Error(err)
			}
			one = time.Since(start)
		}()
		synctest.Wait()
		k.release(p)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if both != time.Hour || one != time.Hour {
			t.Errorf("granted after %v and %v, want an hour", both, one)
		}
		wantForgotten(t, p)
	})
}

func TestPoller_Errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := hourly(), errors.New("the server is gone")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Acquire(ended, []string{"k"}, nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrBusy) {
			t.Errorf("ended beforehand: %v", err)
		}
		if _, err := p.Acquire(t.Context(), []string{"k"}, func() (Lease, error) { return Lease{}, other }); !errors.Is(err, other) || errors.Is(err, ErrBusy) {
			t.Errorf("another error: %v", err)
		}
		k := &polledKey{held: true}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		results := make(chan error, 2)
		for range 2 { // one in front, one behind it
			go func() {
				_, err := p.Acquire(short, []string{"k"}, k.take)
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrBusy) {
				t.Errorf("ended in the queue: %v", err)
			}
		}
		if k.requests != 1 {
			t.Errorf("%d requests, want 1", k.requests)
		}
		wantForgotten(t, p)
	})
}
