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

// The suite needs a server. The tests of this file need none: they run it on stores
// that hold no lock at all, and check the report of the failures. Each backend tests
// on its real server that each check notices the defect it is for.

// useless answers everything in one way.
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

// A store that says yes to everything fails wherever a "no" is due.
func TestFailing_NamesTheChecksOfAStoreThatDoesNotExclude(t *testing.T) {
	yes := useless{lease: locking.Lease{Owner: "me", Fence: 1, Until: time.Now().Add(time.Hour)}}
	said := locktest.Failing(t, always(yes), promises)
	for _, name := range []string{
		"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", "Own/ReleaseAndRenewTouchOnlyTheirOwn",
		"Lost/StaysLost", "Ctx/EndedBeforehandTakesNothing", "Keys/OddOnesNeverCollide", "Keys/InvalidAreErrKey",
		"TTL/UnrepresentableIsAnError", "Do/PanicFreesTheKeys", "Fence/GrowsOverGrants", "Multi/AllOrNone",
		"Expires/FreesTheKeysAfterUntil", "Multi/FenceAboveThoseOfEachKey", "Fence/SurvivesRestart",
	} {
		if said[name] == "" {
			t.Errorf("%s passed", name)
		}
	}
}

// A store that refuses every request fails too: it is safe and of no use.
func TestFailing_NamesTheChecksOfAStoreThatGrantsNothing(t *testing.T) {
	said := locktest.Failing(t, always(useless{err: errors.New("out of order")}), promises)
	for _, name := range []string{
		"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", "Own/ReleaseAndRenewTouchOnlyTheirOwn",
		"Lost/StaysLost", "Renew/KeepsTheKeysPastTheTTL", "Own/RefusedRenewProlongsNothing", "Ctx/EndedBeforehandTakesNothing", "Ctx/EndWhileWaitingIsHeardAtOnce",
		"Keys/OddOnesNeverCollide", "Keys/InvalidAreErrKey", "TTL/UnrepresentableIsAnError", "Do/PanicFreesTheKeys",
		"Fence/GrowsOverGrants", "Fence/SurvivesRestart", "FIFO/Not", "Expires/FreesTheKeysAfterUntil",
		"Multi/AllOrNone", "Multi/OppositeOrdersDoNotDeadlock", "Multi/FenceAboveThoseOfEachKey",
	} {
		if said[name] == "" {
			t.Errorf("%s passed", name)
		}
		delete(said, name)
	}
	if len(said) > 0 {
		t.Errorf("checks that are not listed here: %q", said)
	}
}

// panics is an error whose text cannot be read.
type panics struct{}

func (panics) Error() string { panic("looked at") }
func (panics) Is(error) bool { panic("looked at") }

// A panic in a store is a failure of that check alone.
func TestFailing_TurnsPanicsIntoFailures(t *testing.T) {
	const check = "Keys/InvalidAreErrKey"
	said := locktest.Failing(t, always(useless{err: panics{}}), promises, check)
	if !strings.Contains(said[check], "panic") {
		t.Errorf("said %q, want the panic", said)
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
		said := locktest.Failing(t, always(useless{err: errors.New("out of order")}), p, "Keys/InvalidAreErrKey")
		if !strings.Contains(said["Promises"], says) {
			t.Errorf("%+v: said %q, want something about %s", p, said["Promises"], says)
		}
	}
}
