// SPDX-License-Identifier: MIT

package wallet

// Step is a point of an operation at which a test may stop, slow or kill the process.
type Step string

// The steps, in order. Each attempt passes those from AfterBegin to BeforeCommit. Only credits
// pass AfterCall: lock-late before AfterGuard, inc before AfterAcquire.
const (
	BeforeAcquire Step = "before-acquire" // c1: checked; nothing is held
	AfterAcquire  Step = "after-acquire"  // the request has its turn in this process, if the strategy has queues
	AfterBegin    Step = "after-begin"    // c2: the callback runs, nothing was sent
	AfterGuard    Step = "after-guard"    // c4: all wallets were read, and locked if the strategy locks them
	AfterCall     Step = "after-call"     // the bonus service has answered
	BeforeCommit  Step = "before-commit"  // c5: everything is written
	AfterCommit   Step = "after-commit"   // c6: a majority has the commit; the turn was passed on before that
	AfterRelease  Step = "after-release"  // the strategy has returned, the reply is not sent yet
)

// Steps returns all steps, in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterCall, BeforeCommit, AfterCommit, AfterRelease}
}

// EventKind is a kind of event that Config.Count is called for.
type EventKind string

// The kinds of event.
const (
	Retried      EventKind = "retried"       // the callback ran again, whatever the reason
	Conflict     EventKind = "conflict"      // WriteConflict: another transaction holds the wallet, or the key
	Transient    EventKind = "transient"     // TransientTransactionError for another reason, such as a fail-over
	Expired      EventKind = "expired"       // … in particular NoSuchTransaction: the server had ended the transaction
	Ambiguous    EventKind = "ambiguous"     // a commit whose result is unknown after the driver's own retries
	Resolved     EventKind = "resolved"      // a request with such a commit got its reply by running again with the same key
	GuardTripped EventKind = "guard_tripped" // the schema refused a balance: the last guard
	QueueFull    EventKind = "queue_full"    // a request was refused, because too many wait for the wallet
	Unavailable  EventKind = "unavailable"   // the bonus service did not answer
)
