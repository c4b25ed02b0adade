// SPDX-License-Identifier: MIT

// Package locktest is the contract of a locking.Store as a test suite.
//
// The question: may locking.Do, and the code built on it, treat all stores alike?
// The answer is this suite, which each store runs on its real server:
//
//	func TestContract(t *testing.T) {
//		locktest.Run(t, open, locktest.Promises{Expires: true, Fences: true, …})
//	}
//
// example_test.go has a store of 45 lines, and a Backend for it. loadtest/bench runs the suite over the locks of other libraries.
//
// # What every Store must do
//
//   - Exclusion: one holder at a time, among goroutines that share a Store and among
//     independent Stores.
//   - Release and Renew touch only their own lease; a lost lease stays lost.
//   - Until never exceeds the time before the request plus the TTL, and is
//     monotonic: a late reply does not prolong trust.
//   - When ctx ends, a request returns at once with ctx.Err, and leaves no waiter behind.
//   - A request whose reply was lost is not reported as ErrBusy, unless another holder has the key, and blocks
//     the keys no longer than the TTL.
//   - Different keys are different locks, whatever their bytes; an invalid key is ErrKey.
//   - A TTL that the store cannot represent is an error, and is not rounded.
//   - After a panic in the function given to locking.Do the keys are free. Do inside Do for a key
//     that its ctx holds is locking.ErrNested, in the same Store only.
//
// # What a Store may promise in addition
//
// See Promises. The suite checks each promise that a store makes, and shows on the real
// server that each other property is missing: a store that fences without promising it
// fails. So a store documents its locks as neither weaker nor stronger than they are.
//
// # The tests of the suite
//
// Failing runs the suite without failing the test, and returns the checks that
// failed. Every store runs it on broken variants of itself (release by plain DEL,
// Until counted from the answer, …) and names the check that must fail. Its mutants_test.go has those that its
// servers make possible; these are all kinds:
//
//	mutation                                         fails
//	grants held keys                                 Exclusion/GoroutinesShareOneStore, Exclusion/SeveralStores
//	release by plain DEL: frees the lock of others   Own/ReleaseAndRenewTouchOnlyTheirOwn
//	release does nothing                             Lost/StaysLost, Do/PanicFreesTheKeys
//	release deletes the fence, or resets it          Fence/GrowsOverGrants
//	renew without an owner check                     Own/ReleaseAndRenewTouchOnlyTheirOwn
//	renew, then compare                              Own/RefusedRenewProlongsNothing
//	renew takes a lost key again, or an expired one  Lost/StaysLost
//	renew does nothing                               Renew/KeepsTheKeysPastTheTTL
//	no TTL                                           Expires/FreesTheKeysAfterUntil
//	a TTL that was not promised                      Expires/Not
//	fence that never grows, or goes down             Fence/GrowsOverGrants
//	fence in memory                                  Fence/SurvivesRestart
//	fence above that of one key of several           Multi/FenceAboveThoseOfEachKey
//	a fence that was not promised                    Fence/None
//	trust counted from the answer                    Until/NeverBeyondRequestPlusTTL
//	trust by the wall clock                          Expires/FreesTheKeysAfterUntil
//	ignores ctx                                      Ctx/EndedBeforehandTakesNothing, Ctx/ReturnsAtOnceWithoutAnAnswer
//	leaves a waiter behind                           Ctx/ReturnsAtOnceWhileWaiting
//	passes a waiter others' keys, or an old fence    HandOver/OnlyTheirOwn
//	passes a waiter what is left of a TTL            HandOver/HoldsUntilUntil
//	forgets its own request                          Reply/LostOnAcquire
//	takes silence for an answer                      Reply/NeverComes, Reply/LostOnRenew, Reply/LostOnRelease,
//	                                                 Reply/LostOnHandOver
//	several keys one by one                          Multi/AllOrNone
//	the first of several keys                        Multi/Refused
//	ignores case, trims spaces                       Keys/OddOnesNeverCollide
//	any key is valid                                 Keys/InvalidAreErrKey
//	rounds a TTL, or accepts one that is too short   TTL/UnrepresentableIsAnError
//	grants in any order                              FIFO/GrantsInOrderOfArrival
//	a fence that persists without a promise          Fence/DoesNotSurviveRestart
//
// # Guards
//
// RunGuards is the same for a check of fences in the transactions of a database.
//
// # Tools for tests of a store
//
// Package servertest starts servers for a test, and disturbs the connections to them. Here are failpoints that act at one step of an
// operation (OnceAt, MeetAt, PauseAt), Beside, and Counts of its events.
//
// There are no sleeps: the suite waits for an event, or polls until a deadline. Checks
// run in parallel, each in a key space of its own.
package locktest
