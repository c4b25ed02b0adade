package wallet

// Step is a point of an operation at which a test may stop, slow or kill the process.
type Step string

// The steps, in order; those between AfterBegin and BeforeCommit in each attempt.
// AfterCall is passed by credits only: by lock-late before AfterGuard, by inc before AfterAcquire.
const (
	BeforeAcquire Step = "before-acquire" // c1: checked; nothing is held
	AfterAcquire  Step = "after-acquire"  // it has its turn in this process, where the strategy has queues
	AfterBegin    Step = "after-begin"    // c2: the callback runs, nothing was sent
	AfterGuard    Step = "after-guard"    // c4: all wallets were read (and locked, where they are)
	AfterCall     Step = "after-call"     // the bonus service has answered
	BeforeCommit  Step = "before-commit"  // c5: everything is written
	AfterCommit   Step = "after-commit"   // c6: and a majority has it; the turn was given on before that
	AfterRelease  Step = "after-release"  // the job is over, the client has no reply yet
)

// Steps lists them in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterCall, BeforeCommit, AfterCommit, AfterRelease}
}

// EventKind is something worth counting.
type EventKind string

// The kinds of event.
const (
	Retried      EventKind = "retried"       // the callback ran again, whatever the reason
	Conflict     EventKind = "conflict"      // WriteConflict: another transaction holds the wallet, or the key
	Transient    EventKind = "transient"     // TransientTransactionError for another reason: a fail-over, a server that left …
	Expired      EventKind = "expired"       // … among them NoSuchTransaction: the server had ended it
	Ambiguous    EventKind = "ambiguous"     // a commit whose result is unknown, behind the driver's own retries
	Resolved     EventKind = "resolved"      // … and was decided by running again with the same key
	GuardTripped EventKind = "guard_tripped" // the schema refused a balance: the last guard
	QueueFull    EventKind = "line_full"     // refused, because too many wait for the wallet
	Unavailable  EventKind = "unavailable"   // the bonus service did not answer
)
