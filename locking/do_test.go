// SPDX-License-Identifier: MIT

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

var (
	errDown = errors.New("connection refused")
	errWork = errors.New("the work failed")
	errGone = errors.Join(errors.New("script: renew"), locking.ErrLost)
)

// seconds converts numbers of seconds after the first attempt.
func seconds(list ...float64) (out []time.Duration) {
	for _, s := range list {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}

// Each row is a way to keep or to lose a lease while fn works for 19 s, or until its
// ctx ends. Without a renewal both the trust and the TTL end at 6 s.
var fates = []struct {
	name  string
	renew func(context.Context, int) error
	hold  time.Duration   // Options.MaxHold
	asked []time.Duration // when each renewal was sent
	ended time.Duration   // when fn returned
	cause error           // of fn's ctx; nil: it had not ended when fn returned
}{
	{
		name:  "RenewsEveryThirdOfTheTTL",
		asked: seconds(2, 4, 6, 8, 10, 12, 14, 16, 18),
		ended: 19 * time.Second,
	}, {
		name:  "SlowRenewKeepsThePace",
		renew: slow(1900 * time.Millisecond),
		asked: seconds(2, 4, 6, 8, 10, 12, 14, 16, 18),
		ended: 19 * time.Second,
	}, {
		name:  "SlowRenewDoesNotExtendTrust", // sent at 2 s, answered at 5.9 s: good until 8 s, not 11.9 s
		renew: first(deaf(3900*time.Millisecond), silent),
		asked: seconds(2, 5.9, 7.9),
		ended: 8 * time.Second,
		cause: locking.ErrLost,
	}, {
		name:  "FailingRenewIsRetriedInsideTheTrust",
		renew: failing(0, 7, errDown),
		asked: seconds(2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 7.5, 9.5, 11.5, 13.5, 15.5, 17.5),
		ended: 19 * time.Second,
	}, {
		name:  "FailingRenewEndsWithTheTrust",
		renew: failing(0, math.MaxInt, errDown),
		asked: seconds(2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5),
		ended: ttl,
		cause: errDown,
	}, {
		name:  "RefusedRenewIsFinal", // even if the next one would succeed
		renew: failing(2, 3, errGone),
		asked: seconds(2, 4, 6),
		ended: 6 * time.Second,
		cause: errGone,
	}, {
		name:  "RefusalAmongFailuresIsFinal",
		renew: first(failing(0, 1, errDown), failing(1, 2, errGone)),
		asked: seconds(2, 2.5),
		ended: 2500 * time.Millisecond,
		cause: errGone,
	}, {
		name:  "SilentRenewEndsWithTheTrust",
		renew: silent,
		asked: seconds(2, 4),
		ended: ttl,
		cause: context.DeadlineExceeded,
	}, {
		name:  "OneLostPacketCostsAThirdOfTheTrust",
		renew: first(silent, failing(0, 0, nil)),
		asked: seconds(2, 4, 6, 8, 10, 12, 14, 16, 18),
		ended: 19 * time.Second,
	}, {
		name:  "RenewThatDoesNotComeBackEndsWithTheTrust",
		renew: deaf(time.Minute),
		asked: seconds(2),
		ended: ttl,
		cause: locking.ErrLost,
	}, {
		name:  "AnswerAfterAPauseDoesNotResurrectTrust", // sent at 2 s, good until 8 s, delivered at 7 s
		renew: first(deaf(5*time.Second), failing(0, 0, nil)),
		asked: seconds(2),
		ended: ttl,
		cause: locking.ErrLost,
	}, {
		name:  "MaxHoldEndsRenewalAndCancels",
		hold:  9 * time.Second,
		asked: seconds(2, 4, 6, 8),
		ended: 9 * time.Second,
		cause: locking.ErrMaxHold,
	}, {
		name:  "MaxHoldComesBeforeTheFirstRenewal",
		hold:  time.Second,
		ended: time.Second,
		cause: locking.ErrMaxHold,
	},
}

func TestDo(t *testing.T) {
	for _, fate := range fates {
		t.Run(fate.name, func(t *testing.T) {
			s := &script{renew: fate.renew}
			p := s.play(t, locking.Options{MaxHold: fate.hold}, func(ctx context.Context, _ locking.Lease) error {
				err := work(ctx, 19*time.Second)
				if s.lasted() != fate.ended {
					t.Errorf("fn stopped after %v, want %v", s.lasted(), fate.ended)
				}
				return err
			})
			if !slices.Equal(s.renewals, fate.asked) {
				t.Errorf("renewed at %v, want %v", s.renewals, fate.asked)
			}
			if len(s.releases) != 1 {
				t.Errorf("released %d times", len(s.releases))
			}
			checkCause(t, p, fate.cause)
		})
	}
}

// checkCause checks that fn returned the cause and that one Lost event reports it.
func checkCause(t *testing.T, p played, cause error) {
	t.Helper()
	want := []locking.Kind{locking.Attempt, locking.Acquired, locking.Lost, locking.Released}
	if cause == nil {
		want = slices.Delete(want, 2, 3)
	}
	if !slices.Equal(p.kinds(), want) {
		t.Errorf("events %v, want %v", p.kinds(), want)
	}
	if cause == nil {
		if p.err != nil {
			t.Errorf("got %v, want no loss", p.err)
		}
		return
	}
	if !errors.Is(p.err, cause) || !errors.Is(p.err, locking.ErrLost) {
		t.Errorf("cause %q, want %q and ErrLost", p.err, cause)
	}
	if errors.Is(p.err, locking.ErrMaxHold) != errors.Is(cause, locking.ErrMaxHold) {
		t.Errorf("cause %q, want %q: ErrMaxHold must be distinct", p.err, cause)
	}
}
