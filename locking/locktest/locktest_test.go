// SPDX-License-Identifier: MIT

package locktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The suite needs a server. The tests of this file do not: they run it on stores
// without any lock, and check the reported failures. Each backend tests on its real
// server that each check notices the defect that it is meant for.

// useless gives every request the same answer.
type useless struct {
	lease locking.Lease
	err   error
}

func (u useless) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	if u.err == nil {
		u.lease.Keys = keys
	}
	return u.lease, u.err
}

func (u useless) Renew(_ context.Context, l locking.Lease) (locking.Lease, error) { return l, u.err }
func (u useless) Release(context.Context, locking.Lease) error                    { return u.err }

var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, MultiKey: true, MinTTL: time.Millisecond}

func always(u useless) locktest.Open {
	return func(testing.TB) locktest.Backend {
		b := locktest.Backend{Open: func(time.Duration) (locking.Store, error) { return u, nil }}
		b.Restartable = func() (locktest.Backend, func()) { return b, func() {} }
		return b
	}
}

// A store that grants everything fails every check that requires a refusal.
func TestFailing_NamesTheChecksOfAStoreThatDoesNotExclude(t *testing.T) {
	yes := useless{lease: locking.Lease{Owner: "me", Fence: 1, Until: time.Now().Add(time.Hour)}}
	failures := locktest.Failing(t, always(yes), promises)
	for _, name := range []string{
		"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", "Own/ReleaseAndRenewTouchOnlyTheirOwn",
		"Lost/StaysLost", "Ctx/EndedBeforehandTakesNothing", "Keys/OddOnesNeverCollide", "Keys/InvalidAreErrKey",
		"TTL/UnrepresentableIsAnError", "Do/PanicFreesTheKeys", "Do/InsideDoIsRefused", "Fence/GrowsOverGrants", "Multi/AllOrNone", "HandOver/OnlyTheirOwn", "HandOver/HoldsUntilUntil",
		"Expires/FreesTheKeysAfterUntil", "Multi/FenceAboveThoseOfEachKey", "Fence/SurvivesRestart",
	} {
		if failures[name] == "" {
			t.Errorf("%s passed", name)
		}
	}
}

// A store that refuses every request is safe but useless, and fails too.
func TestFailing_NamesTheChecksOfAStoreThatGrantsNothing(t *testing.T) {
	failures := locktest.Failing(t, always(useless{err: errors.New("out of order")}), promises)
	for _, name := range []string{
		"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", "Own/ReleaseAndRenewTouchOnlyTheirOwn",
		"HandOver/OnlyTheirOwn", "HandOver/HoldsUntilUntil",
		"Lost/StaysLost", "Renew/KeepsTheKeysPastTheTTL", "Own/RefusedRenewProlongsNothing", "Ctx/EndedBeforehandTakesNothing", "Ctx/ReturnsAtOnceWhileWaiting",
		"Keys/OddOnesNeverCollide", "Keys/InvalidAreErrKey", "TTL/UnrepresentableIsAnError", "Do/PanicFreesTheKeys", "Do/InsideDoIsRefused",
		"Fence/GrowsOverGrants", "Fence/SurvivesRestart", "FIFO/Not", "Expires/FreesTheKeysAfterUntil",
		"Multi/AllOrNone", "Multi/OppositeOrdersDoNotDeadlock", "Multi/FenceAboveThoseOfEachKey",
	} {
		if failures[name] == "" {
			t.Errorf("%s passed", name)
		}
		delete(failures, name)
	}
	if len(failures) > 0 {
		t.Errorf("checks that are not listed here: %q", failures)
	}
}

// panics is an error whose methods panic.
type panics struct{}

func (panics) Error() string { panic("used") }
func (panics) Is(error) bool { panic("used") }

// A panic in a store is a failure of that check alone.
func TestFailing_TurnsPanicsIntoFailures(t *testing.T) {
	const check = "Keys/InvalidAreErrKey"
	failures := locktest.Failing(t, always(useless{err: panics{}}), promises, check)
	if !strings.Contains(failures[check], "panic") {
		t.Errorf("failures %q, want the panic", failures)
	}
}

// A message that repeats long keys is cut.
func TestFailing_CutsLongMessages(t *testing.T) {
	const check = "Keys/InvalidAreErrKey"
	failures := locktest.Failing(t, always(useless{err: errors.New("begin" + strings.Repeat(" key", 10_000) + " end")}), promises, check)
	for line := range strings.Lines(failures[check]) {
		if len(line) > 1000 || !strings.Contains(line, "begin") || !strings.Contains(line, " end") {
			t.Errorf("a line of %d bytes, want the begin and the end of the message: %.2000s", len(line), line)
		}
	}
}

// Promises that contradict each other, or that cannot be checked, are refused.
func TestFailing_RefusesPromisesThatCannotBeChecked(t *testing.T) {
	for says, change := range map[string]func(*locktest.Promises){
		"MinTTL":        func(p *locktest.Promises) { p.MinTTL = 0 },
		"without Fence": func(p *locktest.Promises) { p.Fences = false },
		"Waiting":       func(p *locktest.Promises) { p.FIFO = true },
	} {
		p := promises
		change(&p)
		failures := locktest.Failing(t, always(useless{err: errors.New("out of order")}), p, "Keys/InvalidAreErrKey")
		if !strings.Contains(failures["Promises"], says) {
			t.Errorf("%+v: failed with %q, want a text about %s", p, failures["Promises"], says)
		}
	}
}

// A check that has not noticed a broken store is tried again.
func TestWantFailing_TriesAgain(t *testing.T) {
	refused := map[time.Duration]bool{}
	locktest.WantFailing(t, func(testing.TB) locktest.Backend {
		return locktest.Backend{Open: func(ttl time.Duration) (locking.Store, error) {
			bad := ttl <= 0 || ttl%promises.MinTTL != 0
			if bad && !refused[ttl] { // only the first time
				refused[ttl] = true
				return nil, errors.New("not a multiple of the shortest TTL")
			}
			return useless{}, nil
		}}
	}, locktest.Promises{Expires: true, MinTTL: promises.MinTTL}, "TTL/UnrepresentableIsAnError")
}
