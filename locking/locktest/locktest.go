package locktest

import (
	"sync"
	"testing"
	"time"

	"shop/locking"
)

// Promises are what a Store claims beyond the contract that all share.
type Promises struct {
	Expires       bool          // a lease ends by itself after the TTL
	Fences        bool          // a lease has a Fence
	FencePersists bool          // fences, and leases within their TTL, survive a restart of the server with its data
	FIFO          bool          // waiters are granted the keys in the order of their arrival
	MultiKey      bool          // a lease may have several keys, all or none
	MinTTL        time.Duration // the shortest TTL; its multiples are valid too
}

// Backend is a store on a real server, in a key space of its own, with what a
// test needs to disturb it.
type Backend struct {
	// Open makes a Store: each time with a client of its own, as another process
	// would have.
	Open func(ttl time.Duration) (locking.Store, error)

	// Proxied makes a Store whose line to the server can be disturbed. nil is only
	// for a store that sends no requests.
	Proxied func(ttl time.Duration) Proxied

	// Restartable starts a server of its own. restart stops it hard, starts it
	// again on its data and returns when it answers. Needed with Fences.
	Restartable func() (b Backend, restart func())

	// Waiting counts the waiters for key. Needed with FIFO.
	Waiting func(key string) int

	// BadTTLs are refused by Open, besides those that follow from MinTTL.
	BadTTLs []time.Duration
}

// Proxied is a Store and the line between it and its server.
type Proxied struct {
	Store locking.Store
	// Lose lets the server serve the next n requests and keeps their answers
	// from the Store, which hears nothing at all. 0 ends that.
	Lose func(n int)
	// Lost counts the answers that were kept from the Store so far.
	Lost func() int
	// Delay makes each further answer arrive d later.
	Delay func(d time.Duration)
}

// Open makes a Backend for one check, and cleans up with t.Cleanup.
type Open func(t testing.TB) Backend

// atATime is how many checks run side by side. They wait more than they work.
const atATime = 6

// Run checks the contract and the promises, each check as a subtest.
func Run(t *testing.T, open Open, p Promises) {
	t.Helper()
	b := open(t)
	validate(t, b, p)
	sideBySide(checks(b, p), func(c check) {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{TB: t, Backend: open(t), Promises: p})
		})
	})
}

// sideBySide runs the checks at once, but for a few: unlike t.Parallel, whatever
// the number of cores.
func sideBySide(list []check, run func(check)) {
	var all sync.WaitGroup
	places := make(chan struct{}, atATime)
	for _, c := range list {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			run(c)
		})
	}
	all.Wait()
}

// validate refuses promises that cannot be checked, or contradict each other.
func validate(t testing.TB, b Backend, p Promises) {
	t.Helper()
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{p.Expires && p.MinTTL <= 0, "Expires needs MinTTL"},
		{p.FencePersists && !p.Fences, "FencePersists without Fences"},
		{p.Fences && b.Restartable == nil, "Fences needs Backend.Restartable, to show what a restart does to them"},
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

// checks lists the contract, then each promise or the proof of its absence.
func checks(b Backend, p Promises) []check {
	list := append(common(), promised(p)...)
	if b.Proxied == nil {
		return list
	}
	return append(list, disturbed()...)
}

func common() []check {
	return []check{
		{"Exclusion/GoroutinesShareOneStore", exclusionOneStore},
		{"Exclusion/SeveralStores", exclusionSeveralStores},
		{"Own/ReleaseAndRenewTouchOnlyTheirOwn", ownOnly},
		{"Lost/StaysLost", lostStaysLost},
		{"Ctx/EndedBeforehandTakesNothing", ctxEnded},
		{"Ctx/EndWhileWaitingIsHeardAtOnce", ctxWaiting},
		{"Keys/OddOnesNeverCollide", keysOdd},
		{"Keys/InvalidAreErrKey", keysInvalid},
		{"TTL/UnrepresentableIsAnError", ttlBad},
		{"Do/PanicFreesTheKeys", doPanic},
	}
}

// disturbed need a Proxied.
func disturbed() []check {
	return []check{
		{"Until/NeverBeyondRequestPlusTTL", untilFromRequest},
		{"Ctx/EndWhileNoAnswerComesIsHeardAtOnce", ctxSilence},
		{"Reply/LostOnAcquire", replyLostOnAcquire},
		{"Reply/NeverComes", replyNeverComes},
		{"Reply/LostOnRelease", replyLostOnRelease},
		{"Reply/LostOnRenew", replyLostOnRenew},
	}
}

// promised checks each promise that is made, and shows the lack of each other.
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
		list = append(list, check{"Renew/KeepsTheKeysPastTheTTL", renewKeeps}, check{"Own/RefusedRenewProlongsNothing", expiresOnTime})
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
