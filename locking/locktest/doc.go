// Package locktest is the contract of a locking.Store as one suite of tests.
//
// The question: may locking.Do, and everything built on it, treat all stores
// alike? The answer is this suite, run by each store on its real server:
//
//	func TestContract(t *testing.T) {
//		locktest.Run(t, open, locktest.Promises{Expires: true, Fences: true, …})
//	}
//
// # What every Store owes
//
//   - Exclusion: one holder at a time, also among goroutines that share a Store
//     and among Stores that know nothing of each other.
//   - Release and Renew touch only their own lease; a lost lease stays lost.
//   - Until never exceeds the time before the request plus the TTL, and is
//     monotonic: a reply that was long on its way does not prolong trust.
//   - When ctx ends, a request returns at once with ctx.Err, and leaves no waiter behind.
//   - A request whose reply was lost is never reported as ErrBusy, and blocks
//     the keys no longer than the TTL.
//   - Different keys are different locks, whatever their bytes; an invalid key is ErrKey.
//   - A TTL that the store cannot represent is an error, not a rounding.
//   - After a panic in the function given to locking.Do the keys are free.
//
// # What a Store may promise besides
//
// See Promises. Each promise that is made is checked. Each promise that is not made
// is shown to be missing, on the real server: a store that fences and does not
// promise it fails. So a store documents its locks as neither weaker nor stronger
// than they are.
//
// # The tests of the suite
//
// Failing runs the suite without failing the test, and returns the checks that
// failed. Every store runs it on broken variants of itself (release by plain DEL,
// Until counted from the answer, …) and names the check that must fail:
//
//	store variant            noticed by
//	grants held keys         Exclusion/*
//	releases others' locks   Own/ReleaseAndRenewTouchOnlyTheirOwn
//	prolongs others' locks   Own/RefusedRenewProlongsNothing
//	brings a lease back      Lost/StaysLost
//	fence starts again       Fence/*
//	trusts from the answer   Until/NeverBeyondRequestPlusTTL
//	deaf to ctx              Ctx/*
//	forgets its own request  Reply/*
//
// # What tests of a store need besides
//
//	Server   a server of one test, on its own port and data: kill it, pause it, start
//	         it again. It ends with the test process, and its death unasked ends the
//	         test within seconds, with its last log lines.
//	Proxy    TCP in between: cut, refuse, freeze, or look at each read.
//	Faults   a Proxy that loses, delays and drops single requests about locks.
//
// What tests of a service on top of it need: failpoints that act at one step of an
// operation (OnceAt, MeetAt, PauseAt), Beside, and Counts of its events.
//
// There are no sleeps: the suite waits for an event, or asks again until a
// deadline. Checks run in parallel, each in a key space of its own.
package locktest
