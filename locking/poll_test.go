package locking_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"shop/locking"
)

// connection is a store whose leases hold as long as its connection does.
func connection(renew func(context.Context, int) error) *script {
	return &script{renew: renew, until: func(time.Time) time.Time { return time.Time{} }}
}

func TestDo_LeaseWithoutUntilIsChecked(t *testing.T) {
	s := connection(nil)
	p := s.play(t, locking.Options{}, func(ctx context.Context, l locking.Lease) error {
		if !l.Until.IsZero() {
			t.Errorf("Until %v", l.Until)
		}
		return work(ctx, 5500*time.Millisecond)
	})
	if want := seconds(1, 2, 3, 4, 5); p.err != nil || !slices.Equal(s.renewals, want) {
		t.Errorf("got %v; checked at %v, want %v", p.err, s.renewals, want)
	}
}

func TestDo_LeaseWithoutUntilIsLostWithItsConnection(t *testing.T) {
	for name, c := range map[string]struct {
		renew func(context.Context, int) error
		ended time.Duration
		cause error
	}{
		"reported":        {failing(1, 2, errGone), 2 * time.Second, errGone},
		"silent":          {silent, 3 * time.Second, context.DeadlineExceeded},
		"always fails":    {failing(0, math.MaxInt, errDown), 3 * time.Second, errDown},
		"does not return": {deaf(time.Minute), 3 * time.Second, locking.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := connection(c.renew)
			p := s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error {
				err := work(ctx, time.Minute)
				if s.lasted() != c.ended {
					t.Errorf("fn stopped after %v, want %v", s.lasted(), c.ended)
				}
				return err
			})
			if !errors.Is(p.err, c.cause) || !errors.Is(p.err, locking.ErrLost) {
				t.Errorf("cause %v, want %v and ErrLost", p.err, c.cause)
			}
		})
	}
}

func TestDo_ConnectionThatFailsForAWhileIsKept(t *testing.T) {
	s := connection(failing(2, 6, errDown))
	p := s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error { return work(ctx, 30*time.Second) })
	if p.err != nil {
		t.Errorf("got %v", p.err)
	}
}
