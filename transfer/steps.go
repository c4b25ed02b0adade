package transfer

// Step is a point of a transfer at which a test may stop, slow or kill the process.
type Step string

// The steps, in order. Those without a lock store begin with AfterAcquire, naive
// begins its transaction after AfterGuard, and etcd-fence-only and etcd-unfenced
// pass AfterBegin twice.
const (
	BeforeAcquire Step = "before-acquire" // b2: checked; nothing is held
	AfterAcquire  Step = "after-acquire"  // b5: both locks are held, nothing was read
	AfterBegin    Step = "after-begin"    // b6: in a transaction, and past the last look at ctx before the guard
	AfterGuard    Step = "after-guard"    // b8: both accounts were read (and locked, where they are)
	AfterKey      Step = "after-key"      // b7: the idempotency key is inserted; behind the rows, as the order of locks has it
	BeforeCommit  Step = "before-commit"  // b9: everything is written
	AfterCommit   Step = "after-commit"   // b10: and committed
	AfterRelease  Step = "after-release"  // b11: the locks were given back, the client was told nothing yet
)

// Steps lists them in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterKey, BeforeCommit, AfterCommit, AfterRelease}
}

// EventKind is something worth counting.
type EventKind string

// The kinds of event.
const (
	FenceRefused EventKind = "fence_refused" // the guard refused an old fence: ErrStale
	GuardTripped EventKind = "guard_tripped" // CHECK (balance >= held) refused a write: the last guard
	Retried      EventKind = "retried"       // a whole transaction ran again (40001, 40P01, connection lost …)
	Ambiguous    EventKind = "ambiguous"     // a COMMIT whose reply was lost
	Resolved     EventKind = "resolved"      // … and was decided by running again with the same key
	Unavailable  EventKind = "unavailable"   // refused, because the lock service did not answer
	Swept        EventKind = "swept"         // a hold expired, and its money is free
)
