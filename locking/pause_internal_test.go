// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// When a stopped process continues, the scheduler picks the order of an overdue timer,
// an answer that waits in the socket, and fn. The fake clock produces only one order,
// so these tests produce the others by hand.

// grants is a Store that grants everything for a second.
type grants struct{}

func (grants) TryAcquire(_ context.Context, keys ...string) (Lease, error) {
	return Lease{Keys: keys, Until: time.Now().Add(time.Second)}, nil
}

func (grants) Renew(_ context.Context, l Lease) (Lease, error) {
	l.Until = time.Now().Add(time.Second)
	return l, nil
}

func (grants) Release(context.Context, Lease) error { return nil }

// paused returns a hold that was paused, its keeper included, until its trust was over.
func paused(t *testing.T) *hold {
	lease, err := grants{}.TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	h := newHold(t.Context(), grants{}, Options{}, lease)
	h.first.Reset(time.Hour) // the keeper does not start
	time.Sleep(2 * time.Second)
	if h.Err() != nil {
		t.Fatalf("the hold is not paused: %v", context.Cause(h))
	}
	return h
}

func TestPause_AnswerBeforeTheTimerDoesNotResurrectTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := paused(t)
		defer h.stop()
		sent := time.Now().Add(-1500 * time.Millisecond)
		h.learn(answer{sent, Lease{Until: sent.Add(time.Minute)}, nil})
		if cause := context.Cause(h); !errors.Is(cause, ErrLost) {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		if until, _ := trust(h); until.After(time.Now()) {
			t.Errorf("trust for another %v", time.Until(until))
		}
	})
}

func TestPause_EndOfFnBeforeTheTimerReportsTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("the work failed")
		if err := paused(t).end(failure); !errors.Is(err, failure) || !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want both", err)
		}
		if err := paused(t).end(nil); err != nil {
			t.Errorf("got %v, want nil: fn succeeded", err)
		}
	})
}

func TestPause_WriteBeforeTheTimerIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := paused(t)
		defer h.stop()
		if _, _, err := Detach(h, time.Second); !errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

// The keeper itself runs too late to renew.
func TestPause_LateKeeperDoesNotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := paused(t)
		h.first.Reset(0)
		<-h.Done()
		if cause := context.Cause(h); !errors.Is(cause, ErrLost) {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		h.stop()
	})
}
