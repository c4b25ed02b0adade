package locking

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// session counts its ends. It has its lock until err is set.
type session struct {
	err  error
	ends int
}

func (x *session) Renew(context.Context) error { return x.err }
func (x *session) Check(context.Context) error { return x.err }
func (x *session) End()                        { x.ends++ }
func (x *session) Unlock(context.Context) error {
	x.ends++
	return x.err
}

var errClosed = errors.New("closed")

// A grant that arrives after Close is given back, and so is not held for ever.
func TestSessions_CloseEndsWhatIsGrantedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, answer := &session{}, make(chan bool)
		s := NewSessions(time.Minute, errClosed, func(context.Context, string, bool) (*session, error) {
			<-answer
			return x, nil
		})
		result := make(chan error)
		go func() {
			_, err := s.Acquire(t.Context(), []string{"k"}, false)
			result <- err
		}()
		synctest.Wait()
		s.Close()
		answer <- true
		if err := <-result; err != errClosed || x.ends != 1 {
			t.Errorf("got %v, and the session ended %d times; want %v, once", err, x.ends, errClosed)
		}
	})
}

// A grant that arrives after Close frees those behind it too.
func TestSessions_CloseEndsThoseBehindALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan bool)
		s := NewSessions(time.Minute, errClosed, func(context.Context, string, bool) (*session, error) {
			<-answer
			return &session{}, nil
		})
		results, start := make(chan error, 2), time.Now()
		for range 2 {
			go func() {
				_, err := s.Acquire(context.Background(), []string{"k"}, true)
				results <- err
			}()
		}
		synctest.Wait()
		s.Close()
		answer <- true
		for range 2 {
			if err := <-results; err != errClosed || time.Since(start) != 0 {
				t.Errorf("got %v after %v, want %v at once", err, time.Since(start), errClosed)
			}
		}
	})
}

// A session ends once, by the call that sees first that it is lost.
func TestSessions_ALostSessionEndsOnce(t *testing.T) {
	for name, lose := range map[string]func(*Sessions[*session], Lease) error{
		"renew":   func(s *Sessions[*session], l Lease) error { return s.Renew(t.Context(), l) },
		"release": func(s *Sessions[*session], l Lease) error { return s.Release(t.Context(), l) },
	} {
		x := &session{}
		s := NewSessions(time.Minute, errClosed, func(context.Context, string, bool) (*session, error) { return x, nil })
		l, err := s.Acquire(t.Context(), []string{"k"}, true)
		if err != nil {
			t.Fatal(err)
		}
		x.err = ErrLost
		for range 2 {
			if err := lose(s, l); !errors.Is(err, ErrLost) {
				t.Errorf("%s: got %v, want ErrLost", name, err)
			}
		}
		s.Close()
		if _, held := s.Get(l); held || x.ends != 1 {
			t.Errorf("%s: held: %t, and the session ended %d times, want once", name, held, x.ends)
		}
	}
}

// After a renewal without an answer the lease may be held, so its session stays.
func TestSessions_ARenewalWithoutAnAnswerEndsNothing(t *testing.T) {
	x := &session{}
	s := NewSessions(time.Minute, errClosed, func(context.Context, string, bool) (*session, error) { return x, nil })
	l, err := s.Acquire(t.Context(), []string{"k"}, false)
	if err != nil {
		t.Fatal(err)
	}
	x.err = ErrOutcomeUnknown
	if err := s.Renew(t.Context(), l); !errors.Is(err, ErrOutcomeUnknown) || x.ends != 0 {
		t.Errorf("got %v, and the session ended %d times; want ErrOutcomeUnknown, never", err, x.ends)
	}
	x.err = nil
	if err := s.Release(t.Context(), l); err != nil || x.ends != 1 {
		t.Errorf("release: %v, and the session ended %d times; want nil, once", err, x.ends)
	}
}

// Close ends the waiters: those in this process, and one that waits at the server. None waits for the end of a turn.
func TestSessions_CloseEndsEachWait(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var s *Sessions[*session]
			var requests atomic.Int32
			s = NewSessions(time.Minute, errClosed, func(ctx context.Context, _ string, wait bool) (*session, error) {
				requests.Add(1)
				if wait {
					ctx, cancel := s.UntilClose(ctx)
					defer cancel()
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return &session{}, nil
			})
			if held {
				if _, err := s.Acquire(t.Context(), []string{"k"}, false); err != nil {
					t.Fatal(err)
				}
			}
			const waiters = 3
			results, start := make(chan error, waiters), time.Now()
			for range waiters {
				go func() {
					_, err := s.Acquire(context.Background(), []string{"k"}, true)
					results <- err
				}()
			}
			synctest.Wait()
			s.Close()
			for range waiters {
				if err := <-results; err != errClosed || time.Since(start) != 0 {
					t.Errorf("held here: %t; got %v after %v, want %v at once", held, err, time.Since(start), errClosed)
				}
			}
			if _, err := s.Acquire(t.Context(), []string{"k"}, false); err != errClosed {
				t.Errorf("after Close: got %v, want %v", err, errClosed)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("held here: %t; %d requests to the server, want 1 before Close", held, n)
			}
		})
	}
}
