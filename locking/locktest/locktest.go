// SPDX-License-Identifier: MIT

package locktest

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"shop/locking"
)

// Promises are what a Store promises beyond the common contract.
type Promises struct {
	Expires       bool          // a lease expires after the TTL
	Fences        bool          // a lease has a Fence
	FencePersists bool          // fences, and leases within their TTL, survive a restart of the server with its data
	FIFO          bool          // waiters are granted the keys in the order of their arrival
	MultiKey      bool          // a lease may have several keys, all or none
	MinTTL        time.Duration // the shortest TTL; its multiples are valid too
}

// Backend is a store on a real server, in a key space of its own, with the means to
// disturb it.
type Backend struct {
	// Open makes a Store, each with a client of its own, as another process would have.
	Open func(ttl time.Duration) (locking.Store, error)

	// Proxied makes a Store whose connection to the server can be disturbed. nil: the checks of lost and late answers
	// are not run.
	Proxied func(ttl time.Duration) Proxied

	// Restartable starts a server for b alone. restart kills it, starts it again on its
	// data and returns when it answers. Fences needs it.
	Restartable func() (b Backend, restart func())

	// Waiting counts the waiters for key. FIFO needs it.
	Waiting func(key string) int

	// BadTTLs are TTLs that Open refuses, in addition to those that follow from MinTTL.
	BadTTLs []time.Duration
}

// Proxied is a Store with a disturbed connection to its server.
type Proxied struct {
	Store locking.Store
	// Lose lets the server serve the next n requests but loses their answers. 0 stops
	// losing. Of a store with several servers, each loses its next n answers.
	Lose func(n int)
	// Lost counts the answers lost so far.
	Lost func() int
	// Delay delays each further answer by d.
	Delay func(d time.Duration)
}

// Open makes a Backend for one check, and cleans up with t.Cleanup.
type Open func(t testing.TB) Backend

// atATime is how many checks run at once. They wait most of the time.
const atATime = 6

// Run checks the contract and the promises, each check as a subtest: the named checks, or all
// if none is named.
func Run(t *testing.T, open Open, p Promises, names ...string) {
	t.Helper()
	b := open(t)
	validate(t, b, p)
	SideBySide(atATime, choose(t, checks(b, p), names), func(c check) {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{TB: t, Backend: open(t), Promises: p})
		})
	})
}

// SideBySide runs n tests of a list at once, unlike t.Parallel independent of the number of
// cores: they wait most of the time.
func SideBySide[T any](n int, list []T, run func(T)) {
	var all sync.WaitGroup
	places := make(chan struct{}, n)
	for _, c := range list {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			run(c)
		})
	}
	all.Wait()
}

// Subtests runs a subtest for each case, four at once.
func Subtests[C any](t *testing.T, cases map[string]C, test func(*testing.T, C)) {
	t.Helper()
	SideBySide(4, slices.Sorted(maps.Keys(cases)), func(name string) {
		t.Run(name, func(t *testing.T) { test(t, cases[name]) })
	})
}

// validate refuses promises that cannot be checked or that contradict each other.
func validate(t testing.TB, b Backend, p Promises) {
	t.Helper()
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{p.Expires && p.MinTTL <= 0, "Expires needs MinTTL"},
		{p.FencePersists && !p.Fences, "FencePersists without Fences"},
		{p.Fences && b.Restartable == nil, "Fences needs Backend.Restartable, to show whether fences survive a restart"},
		{p.FIFO && b.Waiting == nil, "FIFO needs Backend.Waiting, to know the order of arrival"},
	} {
		if rule.broken {
			t.Fatalf("locktest: %s", rule.text)
		}
	}
}

type check struct {
	name string
	run  func(*suite)
}

// checks lists the checks of the contract, then for each promise its check or the proof of
// its absence.
func checks(b Backend, p Promises) []check {
	list := append(common(), promised(p)...)
	if b.Proxied == nil {
		return list
	}
	return append(list, disturbed()...)
}

// Checks returns the names of the checks that Run runs.
func Checks(b Backend, p Promises) (names []string) {
	for _, c := range checks(b, p) {
		names = append(names, c.name)
	}
	return names
}

// choose returns the named checks of a list; all, if none is named.
func choose(t testing.TB, list []check, names []string) []check {
	if len(names) == 0 {
		return list
	}
	list = slices.DeleteFunc(list, func(c check) bool { return !slices.Contains(names, c.name) })
	if len(list) != len(names) {
		t.Fatalf("locktest: %q: not all of these checks exist with these promises", names)
	}
	return list
}

func common() []check {
	return []check{
		{"Exclusion/GoroutinesShareOneStore", exclusionOneStore},
		{"Exclusion/SeveralStores", exclusionSeveralStores},
		{"Own/ReleaseAndRenewTouchOnlyTheirOwn", ownOnly},
		{"HandOver/OnlyTheirOwn", handOverOwn},
		{"Lost/StaysLost", lostStaysLost},
		{"Ctx/EndedBeforehandTakesNothing", ctxEnded},
		{"Ctx/ReturnsAtOnceWhileWaiting", ctxWaiting},
		{"Keys/OddOnesNeverCollide", keysOdd},
		{"Keys/InvalidAreErrKey", keysInvalid},
		{"TTL/UnrepresentableIsAnError", ttlBad},
		{"Do/PanicFreesTheKeys", doPanic},
		{"Do/InsideDoIsRefused", doNested},
	}
}

// disturbed lists the checks that need Backend.Proxied.
func disturbed() []check {
	return []check{
		{"Until/NeverBeyondRequestPlusTTL", untilFromRequest},
		{"Ctx/ReturnsAtOnceWithoutAnAnswer", ctxSilence},
		{"Reply/LostOnAcquire", replyLostOnAcquire},
		{"Reply/NeverComes", replyNeverComes},
		{"Reply/LostOnRelease", replyLostOnRelease},
		{"Reply/LostOnHandOver", replyLostOnHandOver},
		{"Reply/LostOnRenew", replyLostOnRenew},
	}
}

// promised lists a check of each promise that is made, and a proof of the lack of each
// other one.
func promised(p Promises) []check {
	either := func(promised bool, yes, no check) check {
		if promised {
			return yes
		}
		return no
	}
	list := []check{
		either(p.Expires, check{"Expires/FreesTheKeysAfterUntil", expires}, check{"Expires/Not", expiresNot}),
		either(p.Fences, check{"Fence/GrowsOverGrants", fenceGrows}, check{"Fence/None", fenceNone}),
		either(p.FIFO, check{"FIFO/GrantsInOrderOfArrival", fifo}, check{"FIFO/Not", fifoNot}),
		either(p.MultiKey, check{"Multi/AllOrNone", multiAllOrNone}, check{"Multi/Refused", multiRefused}),
	}
	if p.Expires {
		list = append(list, check{"HandOver/HoldsUntilUntil", handOverUntil}, check{"Renew/KeepsTheKeysPastTheTTL", renewKeeps}, check{"Own/RefusedRenewProlongsNothing", expiresOnTime})
	}
	if p.Fences {
		list = append(list, either(p.FencePersists,
			check{"Fence/SurvivesRestart", fenceRestart}, check{"Fence/DoesNotSurviveRestart", fenceRestartNot}))
	}
	if p.MultiKey {
		list = append(list, check{"Multi/OppositeOrdersDoNotDeadlock", multiOrders})
	}
	if p.MultiKey && p.Fences {
		list = append(list, check{"Multi/FenceAboveThoseOfEachKey", multiFence})
	}
	return list
}

// Eventually polls until ok returns true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
