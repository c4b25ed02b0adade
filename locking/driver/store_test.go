// SPDX-License-Identifier: MIT

package driver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a Driver whose answers the test sets. It stands for the interface, not for a server: locktest tests drivers on
// real servers.
type script struct {
	take func(ctx context.Context, n int, wait bool) error // of request n, from 0; nil: granted
	free func(ctx context.Context, l locking.Lease) error  // nil: freed

	keep  error // of each Keep, after a time
	slow  time.Duration
	until time.Duration // of each grant, from begun; 0: the Store's

	mu    sync.Mutex
	begun time.Time
	takes []time.Duration
	names []string // of the last take
	owner []string // of each take
	frees []time.Duration
	freed []locking.Lease
}

func newScript() *script { return &script{begun: time.Now()} }

func (d *script) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	d.mu.Lock()
	n := len(d.takes)
	d.takes, d.owner = append(d.takes, time.Since(d.begun)), append(d.owner, owner)
	d.names = keys
	d.mu.Unlock()
	g := driver.Grant{Fence: locking.Fence(n + 1)}
	if d.until > 0 {
		g.Until = d.begun.Add(d.until)
	}
	if d.take == nil {
		return g, nil
	}
	return g, d.take(ctx, n, wait)
}

func (d *script) Keep(context.Context, locking.Lease) error {
	d.mu.Lock()
	slow := d.slow
	d.mu.Unlock()
	time.Sleep(slow)
	return d.keep
}

func (d *script) Free(ctx context.Context, l locking.Lease) error {
	d.mu.Lock()
	d.frees, d.freed = append(d.frees, time.Since(d.begun)), append(d.freed, l)
	d.mu.Unlock()
	if d.free == nil {
		return nil
	}
	return d.free(ctx, l)
}

// answers returns the errors of a list, one for each request, and then the last one.
func answers(list ...error) func(context.Context, int, bool) error {
	return func(_ context.Context, n int, _ bool) error { return list[min(n, len(list)-1)] }
}

const ttl = 12 * time.Second

// open makes a Store with a limit of 2 s for each request.
func open(t *testing.T, d driver.Driver, change ...func(*driver.Options)) *driver.Store {
	t.Helper()
	o := driver.Options{Name: "test", TTL: ttl, TTLMin: time.Second, TTLUnit: time.Millisecond}
	for _, f := range change {
		f(&o)
	}
	s, err := driver.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var (
	errSilence = errors.New("connection reset")
	errRefused = errors.New("not allowed")
)

func TestTryAcquire_IsRepeatedUntilTheServerAnswers(t *testing.T) {
	refused, again := driver.Refused(errRefused), driver.Again(errors.New("no primary"))
	for name, c := range map[string]struct {
		answers []error
		want    error // nil: granted
		undone  int   // how often what it may have taken is freed
	}{
		"granted":                      {[]error{nil}, nil, 0},
		"busy":                         {[]error{locking.ErrBusy}, locking.ErrBusy, 0},
		"refused":                      {[]error{refused}, errRefused, 0},
		"not sent":                     {[]error{driver.Unsent(errRefused)}, errRefused, 0},
		"not sent, then granted":       {[]error{again, again, nil}, nil, 0},
		"unknown, then granted":        {[]error{errSilence, errSilence, nil}, nil, 0},
		"unknown, then busy":           {[]error{errSilence, locking.ErrBusy}, locking.ErrBusy, 2}, // the request may still be under way
		"unknown, refused, granted":    {[]error{errSilence, refused, nil}, nil, 0},
		"unknown for half the TTL":     {[]error{errSilence}, locking.ErrOutcomeUnknown, 2},
		"unknown, then always refused": {[]error{errSilence, refused}, locking.ErrOutcomeUnknown, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.take = answers(c.answers...)
				s := open(t, d)
				_, err := s.TryAcquire(t.Context(), "k")
				took := time.Since(d.begun)
				time.Sleep(time.Hour)
				synctest.Wait()
				if !errors.Is(err, c.want) || len(d.frees) != c.undone || took > ttl/2 {
					t.Errorf("%v, freed at %v, after %v; want %v, freed %d times", err, d.frees, took, c.want, c.undone)
				}
				if c.want != locking.ErrOutcomeUnknown && errors.Is(err, locking.ErrOutcomeUnknown) {
					t.Errorf("%v: the outcome is known", err)
				}
				if slices.ContainsFunc(d.owner, func(o string) bool { return o != d.owner[0] }) {
					t.Errorf("the owners are %q, want one", d.owner)
				}
				for _, l := range d.freed {
					if l.Owner != d.owner[0] || l.Fence != 0 {
						t.Errorf("freed %+v, want what %q has under any fence", l, d.owner[0])
					}
				}
			})
		})
	}
}

// What is not sent is known, also if the driver says so only when its time is over, alone or beside others (send).
func TestTryAcquire_NotSentInTimeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(ctx context.Context, _ int, _ bool) error { <-ctx.Done(); return driver.Unsent(ctx.Err()) }
		s := open(t, d)
		for n := range 3 {
			if _, err := s.TryAcquire(t.Context(), "k"); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) || len(d.takes) != n+1 {
				t.Errorf("%v after %d requests, want an error of a request that was not sent", err, len(d.takes))
			}
		}
		d.take = func(ctx context.Context, n int, _ bool) error {
			if n == 3 {
				<-ctx.Done()
				return driver.Again(ctx.Err())
			}
			return nil
		}
		if _, err := s.TryAcquire(t.Context(), "k"); err != nil || len(d.takes) != 5 {
			t.Errorf("%v after %d requests, want the second one granted", err, len(d.takes)-3)
		}
	})
}

// The error matches that of ctx, whenever it ends.
func TestTryAcquire_EndOfCtxBetweenTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []error{driver.Again(errors.New("no primary")), errSilence} {
			d := newScript()
			d.take = answers(answer)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Microsecond)
			defer cancel()
			if _, err := open(t, d).TryAcquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the end of ctx", err)
			}
		}
	})
}

// Close ends a request that would be repeated, and the leases that have no TTL.
func TestClose_EndsRequestsAndSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = answers(errSilence)
		s := open(t, d)
		time.AfterFunc(10*time.Millisecond, s.Close)
		if _, err := s.TryAcquire(t.Context(), "k"); !errors.Is(err, locking.ErrClosed) || time.Since(d.begun) > time.Second {
			t.Errorf("%v after %v, want ErrClosed at once", err, time.Since(d.begun))
		}
		sessions := open(t, newScript(), func(o *driver.Options) { o.TTL, o.TTLMin, o.Limit = 0, 0, time.Second })
		l, err := sessions.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		sessions.Close()
		_, renewed := sessions.Renew(t.Context(), l)
		for verb, err := range map[string]error{"renew": renewed, "release": sessions.Release(t.Context(), l)} {
			if !errors.Is(err, locking.ErrLost) || !errors.Is(err, locking.ErrClosed) {
				t.Errorf("%s: %v, want ErrLost, since Close has ended the lease, and ErrClosed", verb, err)
			}
		}
	})
}

// late is a session that opens after its ctx has ended.
type late struct{ ended chan struct{} }

func (late) Keep(context.Context) error { return nil }
func (late) Free(context.Context) error { return nil }
func (x late) End()                     { close(x.ended) }

func TestSessions_ThatOpenTooLateEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := late{make(chan struct{})}
		d := &driver.Sessions[late]{Open: func(context.Context, string, bool) (late, error) { time.Sleep(5 * time.Second); return x, nil }}
		s := open(t, d, func(o *driver.Options) { o.TTL, o.TTLMin, o.Limit = 0, 0, time.Second })
		if _, err := s.TryAcquire(t.Context(), "k"); err == nil {
			t.Error("granted")
		}
		<-x.ended
	})
}

// A server that is back after seconds is asked again at once, however long the TTL is.
func TestTryAcquire_PausesForARequestAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(context.Context, int, bool) error {
			if time.Since(d.begun) < 20*time.Second {
				return errSilence
			}
			return nil
		}
		s := open(t, d, func(o *driver.Options) { o.TTL, o.Limit = time.Minute, 250*time.Millisecond })
		_, err := s.TryAcquire(t.Context(), "k")
		for i := range d.takes[1:] {
			if gap := d.takes[i+1] - d.takes[i]; gap > 250*time.Millisecond {
				t.Errorf("a pause of %v before request %d", gap, i+1)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A request may be executed after a removal that was sent later: the second removes what it has taken.
func TestTryAcquire_WhoseCallerLeavesIsUndoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(ctx context.Context, _ int, _ bool) error { <-ctx.Done(); return ctx.Err() }
		s := open(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.TryAcquire(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{time.Second, 3 * time.Second}; !slices.Equal(d.frees, want) {
			t.Errorf("freed after %v, want %v", d.frees, want)
		}
	})
}

// A time-out of the Store is not the end of the caller's ctx.
func TestTryAcquire_SilenceIsNotTheEndOfCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(ctx context.Context, _ int, _ bool) error { <-ctx.Done(); return ctx.Err() }
		_, err := open(t, d).TryAcquire(t.Context(), "k")
		if errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrOutcomeUnknown alone", err)
		}
	})
}

// A driver that does not notice the end of ctx is called aside when it has been silent once.
func TestTryAcquire_ReturnsAtTheEndOfCtxThoughTheDriverDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(context.Context, int, bool) error { time.Sleep(2 * time.Second); return context.DeadlineExceeded }
		s := open(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		_, err := s.TryAcquire(ctx, "k")
		if took := time.Since(d.begun); took != 2500*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v, want the end of ctx after 2.5s", err, took)
		}
	})
}

// Until counts from before the request, or from the moment that the driver names.
func TestTryAcquire_UntilCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(context.Context, int, bool) error { time.Sleep(time.Second); return nil }
		l, err := open(t, d).TryAcquire(t.Context(), "k")
		if want := d.begun.Add(ttl - ttl/100 - 2*time.Millisecond); err != nil || !l.Until.Equal(want) {
			t.Errorf("Until is %v, want %v; %v", l.Until.Sub(d.begun), want.Sub(d.begun), err)
		}
	})
}

// Removals beyond the limit are left to the TTL. One without an answer is repeated for a TTL, and Close ends it and waits.
func TestClose_WaitsForRemovalsWhichAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ended := newScript(), make(chan struct{}, 1000)
		d.take = func(ctx context.Context, _ int, _ bool) error { <-ctx.Done(); return ctx.Err() }
		d.free = func(ctx context.Context, _ locking.Lease) error {
			<-ctx.Done()
			ended <- struct{}{}
			return ctx.Err()
		}
		s := open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for n := range 200 {
			callers.Go(func() { _, _ = s.TryAcquire(ctx, fmt.Sprint(n)) })
		}
		synctest.Wait()
		cancel()
		callers.Wait()
		synctest.Wait()
		if len(d.frees) != 64 {
			t.Errorf("%d removals are under way, want 64", len(d.frees))
		}
		closed := time.Now()
		s.Close()
		if len(ended) != 64 || time.Since(closed) > 0 {
			t.Errorf("%d removals have ended, after %v", len(ended), time.Since(closed))
		}
		for verb, err := range map[string]error{
			"acquire": second(s.TryAcquire(t.Context(), "k")), "wait": second(s.Acquire(t.Context(), "k")),
			"renew": second(s.Renew(t.Context(), locking.Lease{Keys: []string{"k"}})), "release": s.Release(t.Context(), locking.Lease{Keys: []string{"k"}}),
		} {
			if !errors.Is(err, locking.ErrClosed) || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrLost) {
				t.Errorf("%s: %v, want ErrClosed", verb, err)
			}
		}
	})
}

func second(_ locking.Lease, err error) error { return err }

// Close ends a waiter whose ctx does not end, in front and behind.
func TestClose_EndsTheWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = answers(locking.ErrBusy)
		s := open(t, d)
		got := make(chan error, 2)
		for range 2 {
			go func() { got <- second(s.Acquire(context.Background(), "k")) }()
		}
		synctest.Wait()
		s.Close()
		for range 2 {
			if err := <-got; !errors.Is(err, locking.ErrClosed) || errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
	})
}

// One request of a process is at the server, and the others wait behind it, until the key is given back.
func TestAcquire_OneRequestOfAProcessAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		s := open(t, d)
		first, err := s.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for n := range 3 {
			go func() {
				l, err := s.Acquire(t.Context(), "k")
				if err == nil {
					order = append(order, n)
					err = s.Release(t.Context(), l)
				}
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if _, err := s.TryAcquire(t.Context(), "k"); !errors.Is(err, locking.ErrBusy) || len(d.takes) != 1 {
			t.Errorf("got %v and %d requests, want ErrBusy, and no request", err, len(d.takes))
		}
		if err := s.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2}) || len(d.takes) != 4 {
			t.Errorf("granted in the order %v with %d requests", order, len(d.takes))
		}
	})
}

// A holder that does not release has its place until its Until, which a renewal moves.
func TestAcquire_AHolderThatIsGoneKeepsItsPlaceUntilUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		s := open(t, d)
		l, err := s.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		if l, err = s.Renew(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Acquire(t.Context(), "k"); err != nil || time.Now().Before(l.Until) || time.Since(l.Until) > time.Millisecond {
			t.Errorf("granted at %v, want at %v; %v", time.Since(d.begun), l.Until.Sub(d.begun), err)
		}
	})
}

// A waiter whose ctx ends leaves the line, and says whether it waited for another holder.
func TestAcquire_EndOfCtx(t *testing.T) {
	for name, c := range map[string]struct {
		held bool // by this process
		take error
		busy bool
	}{
		"behind another request": {true, nil, true},
		"another process has it": {false, locking.ErrBusy, true},
		"the server is silent":   {false, errSilence, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				s := open(t, d)
				var held locking.Lease
				if c.held {
					held, _ = s.TryAcquire(t.Context(), "k")
				}
				d.take = answers(c.take)
				gone := errors.New("gone")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
				defer cancel()
				_, err := s.Acquire(ctx, "k")
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrBusy) != c.busy {
					t.Errorf("got %v, want the end of ctx, and ErrBusy: %t", err, c.busy)
				}
				d.take = nil
				if c.held {
					_ = s.Release(t.Context(), held)
				}
				if _, err := s.TryAcquire(t.Context(), "k"); err != nil {
					t.Errorf("it has not left the line: %v", err)
				}
			})
		})
	}
}

// listener is a script that hears of releases.
type listener struct {
	*script
	wake chan func(string)
}

func (d *listener) Listen(ctx context.Context, wake func(string)) error {
	wake("")
	select {
	case d.wake <- wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-ctx.Done()
	return ctx.Err()
}

// A message lets the first waiter ask, before its pause is over. A message for another key does not.
func TestAcquire_IsWokenByAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &listener{newScript(), make(chan func(string), 1)}
		free := false
		d.take = func(context.Context, int, bool) error {
			if free {
				return nil
			}
			return locking.ErrBusy
		}
		s := open(t, d, func(o *driver.Options) { o.Pause = locking.Backoff{Base: time.Hour, Max: time.Hour} })
		granted := make(chan error, 1)
		go func() { granted <- second(s.Acquire(t.Context(), "k")) }()
		wake := <-d.wake
		time.Sleep(time.Second)
		synctest.Wait()
		asked := len(d.takes)
		free = true
		wake("other")
		time.Sleep(time.Second)
		synctest.Wait()
		if len(d.takes) != asked {
			t.Error("woken by the message for another key")
		}
		wake("k")
		if err := <-granted; err != nil || time.Since(d.begun) > 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(d.begun))
		}
	})
}

func TestNew_RefusesATTLThatTheServerWouldRound(t *testing.T) {
	for _, ttl := range []time.Duration{0, -time.Second, 999 * time.Millisecond, time.Second + time.Microsecond} {
		_, err := driver.New(newScript(), driver.Options{Name: "test", TTL: ttl, TTLMin: time.Second, TTLUnit: time.Millisecond})
		if !errors.Is(err, locking.ErrTTL) || !strings.Contains(fmt.Sprint(err), "test: ") {
			t.Errorf("%v: %v, want ErrTTL", ttl, err)
		}
	}
}

func TestTryAcquire_SeveralKeysOfAStoreForOne(t *testing.T) {
	s := open(t, newScript(), func(o *driver.Options) { o.OneKey = true })
	if _, err := s.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, locking.ErrSeveralKeys) {
		t.Errorf("got %v, want ErrSeveralKeys", err)
	}
	if _, err := s.TryAcquire(t.Context(), "a", "a"); err != nil {
		t.Errorf("one key, named twice: %v", err)
	}
}

// A waiter with a ticket at the server keeps it while some of its requests have no answer, and frees it when it leaves, if
// there may be one.
func TestAcquire_KeepsItsTicketUntilItLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error
		want    error // nil: granted
		frees   int
	}{
		"refused at once":                   {[]error{driver.Refused(errRefused)}, errRefused, 0},
		"not sent":                          {[]error{driver.Unsent(errRefused)}, errRefused, 0},
		"waits, and leaves":                 {[]error{locking.ErrBusy}, locking.ErrBusy, 2},
		"waits, and is refused":             {[]error{locking.ErrBusy, driver.Refused(errRefused)}, errRefused, 2},
		"no answer, waits, granted":         {[]error{errSilence, locking.ErrBusy, nil}, nil, 0},
		"waits, no answer, waits, granted":  {[]error{locking.ErrBusy, errSilence, locking.ErrBusy, nil}, nil, 0},
		"waits, then silence":               {[]error{locking.ErrBusy, errSilence}, locking.ErrOutcomeUnknown, 2},
		"waits, no answer, waits, silence":  {[]error{locking.ErrBusy, errSilence, locking.ErrBusy, errSilence}, locking.ErrOutcomeUnknown, 2},
		"waits, no answer, waits, and ends": {[]error{locking.ErrBusy, errSilence, locking.ErrBusy}, locking.ErrBusy, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.take = answers(c.answers...)
				s := open(t, d, func(o *driver.Options) {
					o.Tickets, o.Pause = true, locking.Backoff{Base: time.Second, Max: time.Second}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := s.Acquire(ctx, "k")
				time.Sleep(time.Hour)
				synctest.Wait()
				if !errors.Is(err, c.want) || len(d.frees) != c.frees {
					t.Errorf("%v, freed at %v; want %v, freed %d times", err, d.frees, c.want, c.frees)
				}
				if slices.ContainsFunc(d.owner, func(o string) bool { return o != d.owner[0] }) {
					t.Errorf("the owners are %q, want one", d.owner)
				}
			})
		})
	}
}

func lasting(o *driver.Options) { o.Lasting, o.Trust = true, 4*time.Second }

func queues(o *driver.Options) { o.Queues = true }

// What does not end with the TTL is freed at Until, or when the lease is lost, until the server has answered.
func TestLasting_IsFreed(t *testing.T) {
	for name, c := range map[string]struct {
		keep  error
		free  []error
		frees []time.Duration
	}{
		"at Until":                    {nil, []error{nil}, []time.Duration{4 * time.Second, 6 * time.Second}},
		"when it is lost":             {locking.ErrLost, []error{nil}, []time.Duration{0, 2 * time.Second}},
		"although the server is away": {locking.ErrLost, append(slices.Repeat([]error{errSilence}, 100), nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.keep = c.keep
				d.free = func(context.Context, locking.Lease) error { return c.free[min(len(d.frees), len(c.free))-1] }
				s := open(t, d, lasting)
				l, err := s.TryAcquire(t.Context(), "k")
				if err != nil || !l.Until.Equal(d.begun.Add(4*time.Second)) {
					t.Fatalf("%+v, %v", l, err)
				}
				if _, err := s.Renew(t.Context(), l); !errors.Is(err, c.keep) {
					t.Error(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if c.frees != nil && !slices.Equal(d.frees, c.frees) || len(d.frees) < len(c.free) {
					t.Errorf("freed after %v, want %v", d.frees, c.frees)
				}
			})
		})
	}
}

func TestAcquire_ThatLeavesTheQueueOfTheServerIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(ctx context.Context, _ int, _ bool) error { <-ctx.Done(); return locking.ErrBusy }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := open(t, d, queues)
		if _, err := s.Acquire(ctx, "k"); !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrBusy and the end of ctx", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{time.Hour, time.Hour + 2*time.Second}; !slices.Equal(d.frees, want) || d.freed[0].Owner != d.owner[0] {
			t.Errorf("freed %+v after %v, want %q after %v", d.freed, d.frees, d.owner, want)
		}
	})
}

// After a Close that ends the wait nothing starts in the background: the waiter frees its place, and Close waits for that.
func TestClose_ALeavingWaiterFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = func(ctx context.Context, _ int, _ bool) error { <-ctx.Done(); return locking.ErrBusy }
		d.free = func(context.Context, locking.Lease) error { time.Sleep(time.Second); return nil }
		s, ended := open(t, d, queues), make(chan error, 1)
		go func() {
			_, err := s.Acquire(t.Context(), "k")
			ended <- err
		}()
		synctest.Wait()
		closed := time.Now()
		s.Close()
		if len(d.frees) != 1 || time.Since(closed) != time.Second {
			t.Errorf("freed %d times, Close took %v", len(d.frees), time.Since(closed))
		}
		if err := <-ended; !errors.Is(err, locking.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

// A renewal that is answered when the lease is already being freed does not prolong it.
func TestRenew_DoesNotReviveWhatIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.slow = 3 * time.Second
		s := open(t, d, lasting)
		l, err := s.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if l, err := s.Renew(t.Context(), l); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%+v, %v, want ErrLost: its Until has passed", l, err)
		}
	})
}

// Of two renewals the one that was sent later counts, in whatever order they are answered.
func TestRenew_UntilNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		s := open(t, d, lasting)
		l, err := s.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		d.slow = 3 * time.Second
		first := make(chan locking.Lease)
		go func() {
			l, err := s.Renew(t.Context(), l)
			if err != nil {
				t.Error(err)
			}
			first <- l
		}()
		time.Sleep(time.Second)
		d.mu.Lock()
		d.slow = 0
		d.mu.Unlock()
		second, err := s.Renew(t.Context(), l)
		if early := <-first; err != nil || !early.Until.Equal(second.Until) {
			t.Errorf("Until is %v, then %v: %v", second.Until.Sub(d.begun), early.Until.Sub(d.begun), err)
		}
	})
}

// A client may have sent a request before the time of which it tells.
func TestAcquire_NotSentToAQueueIsFreedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.take = answers(driver.Unsent(errRefused))
		_, err := open(t, d, queues).Acquire(t.Context(), "k")
		time.Sleep(time.Minute)
		synctest.Wait()
		if errors.Is(err, locking.ErrOutcomeUnknown) || !errors.Is(err, errRefused) || len(d.frees) != 2 {
			t.Errorf("%v, freed %d times", err, len(d.frees))
		}
	})
}

// The place of a waiter may get lost after any time, and its lease is as old as the driver says.
func TestAcquire_WaitsAgainWhenItsPlaceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.until = 3 * time.Hour
		d.take = func(_ context.Context, n int, _ bool) error {
			time.Sleep(time.Hour)
			if n < 2 {
				return driver.Anew(errors.New("the place in the queue is gone"))
			}
			return nil
		}
		l, err := open(t, d, queues).Acquire(t.Context(), "k")
		if err != nil || len(d.takes) != 3 || !l.Until.Equal(d.begun.Add(3*time.Hour)) {
			t.Errorf("%+v, %v after %d requests, want the third granted", l, err, len(d.takes))
		}
	})
}

func TestPrefix_BeginsTheNamesInTheServerAlone(t *testing.T) {
	d := newScript()
	s := open(t, d, func(o *driver.Options) { o.Prefix, o.NameMax = "p/", locking.KeyMax })
	l, err := s.TryAcquire(t.Context(), "b", "a")
	if want := []string{"p/a", "p/b"}; err != nil || !slices.Equal(d.names, want) || !slices.Equal(l.Keys, []string{"a", "b"}) {
		t.Fatalf("%v; the driver took %q, want %q; the lease has %q, want a and b", err, d.names, want, l.Keys)
	}
	if err := s.Release(t.Context(), l); err != nil || !slices.Equal(d.freed[0].Keys, d.names) {
		t.Errorf("%v; freed %q, want %q", err, d.freed[0].Keys, d.names)
	}
	if _, err := s.TryAcquire(t.Context(), strings.Repeat("k", locking.KeyMax-1)); !errors.Is(err, locking.ErrKey) {
		t.Errorf("a name of %d bytes: %v, want ErrKey", locking.KeyMax+1, err)
	}
}

func TestNew_RefusesAPrefixThatNoKeyMayHave(t *testing.T) {
	for _, prefix := range []string{"a\x00", "\xff", strings.Repeat("p", locking.KeyMax), strings.Repeat("p", 600)} {
		o := driver.Options{Name: "test", TTL: ttl, TTLMin: time.Second, TTLUnit: time.Millisecond, NameMax: locking.KeyMax, Prefix: prefix}
		if _, err := driver.New(newScript(), o); !errors.Is(err, locking.ErrKey) {
			t.Errorf("%.8q, %d bytes: %v, want ErrKey", prefix, len(prefix), err)
		}
	}
}
