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

func (k *polledKey) free() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = false
}

func (k *polledKey) asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.requests
}

func (k *polledKey) release(p *Poller) {
	k.free()
	p.released([]string{"k"})
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
				// The third release, after 75 s, is not within a minute of the first grant. So the fourth request pauses, and
				// begins the next turn.
				next := 75*time.Second + time.Hour/2
				want := []time.Duration{0, 25 * time.Second, 50 * time.Second, next, next + 25*time.Second, next + 50*time.Second}
				if !slices.Equal(grants, want) {
					t.Errorf("granted after %v, want %v", grants, want)
				}
			})
		})
	}
}

// passing is a Poller whose store passes leases, and what it did.
type passing struct {
	*Poller
	polledKey
	passes, frees int
	unused        []Lease
}

func newPassing() *passing {
	p := &passing{Poller: hourly()}
	p.held = true
	p.Unused = func(l Lease) { p.unused = append(p.unused, l) }
	return p
}

// release releases k with a pass, before whose end it calls meanwhile.
func (p *passing) release(meanwhile func()) error {
	return p.Release(Lease{Keys: []string{"k"}}, func() (Lease, error) {
		p.passes++
		until := time.Now().Add(time.Hour)
		meanwhile()
		return Lease{Keys: []string{"k"}, Owner: "passed", Until: until}, nil
	}, func() error {
		p.frees++
		p.free()
		return nil
	})
}

// wait starts a request. Its result is in the channel.
func (p *passing) wait(ctx context.Context, keys ...string) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := p.Acquire(ctx, keys, p.take)
		result <- err
	}()
	synctest.Wait()
	return result
}

// One request to the server ends a lease and makes the next, as long as requests wait and the turn is not over.
func TestPoller_AReleasePassesTheKeyOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPassing()
		var waits []<-chan error
		for range 5 {
			waits = append(waits, p.wait(t.Context(), "k"))
		}
		for i, wait := range waits {
			if i == 4 {
				time.Sleep(p.Turn) // it is over after this release
			}
			if err := p.release(func() {}); err != nil {
				t.Error(err)
			}
			if i < 4 {
				if err := <-wait; err != nil {
					t.Error(err)
				}
			}
		}
		synctest.Wait()
		if p.asked() != 1 || p.passes != 4 || p.frees != 1 || len(waits[4]) != 0 {
			t.Errorf("%d requests, want the first's; %d passes, want 4; %d releases without, want 1", p.asked(), p.passes, p.frees)
		}
		time.Sleep(time.Hour)
		if err := <-waits[4]; err != nil || p.asked() != 2 {
			t.Errorf("%v, %d requests", err, p.asked())
		}
		wantForgotten(t, p.Poller)
	})
}

// A lease that was passed to a request which has left, or too late, is released. None is passed to a request for several keys.
func TestPoller_ALeaseThatNoRequestTakesIsReleased(t *testing.T) {
	for name, test := range map[string]struct {
		keys           []string
		leaves         bool          // during the pass
		late           time.Duration // the pass
		passes, unused int
	}{
		"taken":                 {[]string{"k"}, false, 0, 1, 0},
		"it has left":           {[]string{"k"}, true, 0, 1, 1},
		"it comes after Until":  {[]string{"k"}, false, time.Hour, 1, 1},
		"it wants several keys": {[]string{"j", "k"}, false, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPassing()
				p.Pause.Base, p.Pause.Max = 24*time.Hour, 24*time.Hour
				ctx, cancel := context.WithCancel(t.Context())
				wait := p.wait(ctx, test.keys...)
				err := p.release(func() {
					time.Sleep(test.late)
					if test.leaves {
						cancel()
						synctest.Wait()
					}
				})
				synctest.Wait()
				if err != nil || p.passes != test.passes || len(p.unused) != test.unused {
					t.Errorf("%v, %d passes, %d leases released as unused; want %d and %d", err, p.passes, len(p.unused), test.passes, test.unused)
				}
				cancel()
				<-wait
				wantForgotten(t, p.Poller)
			})
		})
	}
}

// The first has got a lease, and left at the same time.
func TestPoller_AWaiterThatLeavesPassesItsLeaseOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // in which order it sees the two is random
			p := newPassing()
			ctx, cancel := context.WithCancel(t.Context())
			first, second := p.wait(ctx, "k"), p.wait(t.Context(), "k")
			if err := p.release(cancel); err != nil {
				t.Error(err)
			}
			got := <-first
			synctest.Wait()
			if granted := len(second) == 1; granted == (got == nil) || len(p.unused) != 0 {
				t.Fatalf("the first: %v; the second granted: %v; %d leases released as unused", got, granted, len(p.unused))
			}
			if got == nil {
				_ = p.release(func() {})
			}
			if err := <-second; err != nil {
				t.Error(err)
			}
		}
	})
}

// The only request leaves while a lease is on its way to it, and leaves it behind.
func TestPoller_TheLastWaiterLeavesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 40 { // in which order it sees the two is random
			p := newPassing()
			ctx, cancel := context.WithCancel(t.Context())
			wait := p.wait(ctx, "k")
			if err := p.release(cancel); err != nil {
				t.Error(err)
			}
			err := <-wait
			synctest.Wait()
			if left := err != nil; left != (len(p.unused) == 1) {
				t.Fatalf("the request: %v; %d leases released as unused", err, len(p.unused))
			}
		}
	})
}

// A lease has expired that was passed to a request whose attempt takes long. The next release does not wait for it.
func TestPoller_ALeaseIsPassedAfterOneThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPassing()
		granted := make(chan error, 1)
		go func() {
			_, err := p.Acquire(t.Context(), []string{"k"}, func() (Lease, error) {
				time.Sleep(150 * time.Minute)
				return Lease{}, ErrBusy
			})
			granted <- err
		}()
		synctest.Wait()
		_ = p.release(func() {})
		time.Sleep(2 * time.Hour)
		start := time.Now()
		_ = p.release(func() {})
		if took := time.Since(start); took != 0 || len(p.unused) != 1 {
			t.Errorf("the second release took %v; %d leases released as unused, want 1", took, len(p.unused))
		}
		if err := <-granted; err != nil {
			t.Error(err)
		}
	})
}

// After a pass that has done nothing the key is freed in two requests; after one without an answer the first request
// asks the server.
func TestPoller_APassMayFail(t *testing.T) {
	for name, test := range map[string]struct{ pass, want error }{
		"lost":      {ErrLost, nil},
		"no answer": {ErrOutcomeUnknown, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPassing()
				wait, frees := p.wait(t.Context(), "k"), 0
				err := p.Release(Lease{Keys: []string{"k"}}, func() (Lease, error) {
					if test.pass != ErrLost {
						p.free()
					}
					return Lease{}, test.pass
				}, func() error { frees++; p.free(); return nil })
				if !errors.Is(err, test.want) || (frees == 1) != (test.want == nil) {
					t.Errorf("release: %v, want %v; %d without a pass", err, test.want, frees)
				}
				if err := <-wait; err != nil || p.asked() != 2 {
					t.Errorf("the next request: %v, after %d", err, p.asked())
				}
			})
		})
	}
}

// A request that polls for others as well does so as often as all of them would, for as long as one would pause equally.
func TestPoller_ManyPauseShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hourly()
		p.Pause.Max = 2 * time.Hour
		for _, together := range []int{1, 2, togetherMax, 20} {
			p.queue.Join(nil, "k")
			for p.Len("k") < together {
				p.queue.Join(nil, "k")
			}
			n := min(together, togetherMax)
			first, equal := time.Hour/time.Duration(n), equalPauses*n
			for number, want := range map[int]time.Duration{0: first, equal - 1: first, equal: 2 * first, 5 * equal: min(32*first, 2*time.Hour)} {
				if got := p.pause([]string{"j", "k"}, number); got != want {
					t.Errorf("pause %d of %d requests: %v, want %v", number, together, got, want)
				}
			}
		}
	})
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
