package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

// Move is what a client asks for. Amount is in minor units of Currency (ISO 4217).
type Move struct {
	From     uuid.UUID
	To       uuid.UUID
	Amount   int64
	Currency string
}

// State of a transfer. It changes once, from Reserved to one of the others.
type State string

// A transfer at once is Posted from its first moment; a hold begins as Reserved.
const (
	Reserved State = "reserved" // the money is held, and still the payer's
	Posted   State = "posted"   // it moved, all of it or a part
	Voided   State = "voided"   // it is free again, because its client voided it
	Expired  State = "expired"  // … because it was not posted in time
)

// Transfer is money that moved, or is held to move.
type Transfer struct {
	ID        uuid.UUID
	Client    uuid.UUID // that asked for it: the owner of From
	From      uuid.UUID
	To        uuid.UUID
	Amount    int64 // asked for, or held
	Settled   int64 // what moved; less than Amount when a hold was posted in part
	Currency  string
	State     State
	CreatedAt time.Time
	ExpiresAt *time.Time // holds only
	EndedAt   *time.Time // nil while reserved
}

// utc has its times in UTC: a body must not depend on the server that wrote it.
func (t Transfer) utc() Transfer {
	t.CreatedAt = t.CreatedAt.UTC()
	for _, at := range []**time.Time{&t.ExpiresAt, &t.EndedAt} {
		if *at != nil {
			moved := (*at).UTC()
			*at = &moved
		}
	}
	return t
}

// Request and Reply are those of every lesson.
type (
	Request = idempotency.Request
	Reply   = idempotency.Reply
)

// Encode turns an outcome that will be stored (a transfer, or
// ErrInsufficientFunds, ErrExpired, ErrSettled with the transfer it is about)
// into the Reply. It runs inside the transaction, and must not do I/O.
type Encode func(Transfer, error) (Reply, error)

// Errors that certainly moved nothing. The first three are stored under the key.
var (
	ErrInsufficientFunds = errors.New("transfer: insufficient funds")
	ErrExpired           = errors.New("transfer: the hold has expired")
	ErrSettled           = errors.New("transfer: the hold was settled before")

	ErrNotFound  = errors.New("transfer: not found")
	ErrForbidden = errors.New("transfer: the account is another client's")
	ErrInvalid   = errors.New("transfer: invalid request")
	ErrEpoch     = errors.New("transfer: the account was fenced in another epoch")
)

// UnavailableError is a lock service that does not answer: no money moves
// without it. It matches locking.ErrBusy, which means the same to a client:
// nothing was done, send the request again.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return "transfer: the lock service grants nothing: " + e.Err.Error()
}
func (e *UnavailableError) Is(target error) bool { return target == locking.ErrBusy }

// InsufficientFundsError says how much is missing. It matches ErrInsufficientFunds.
type InsufficientFundsError struct {
	Account   uuid.UUID
	Wanted    int64
	Available int64
}

func (e *InsufficientFundsError) Error() string {
	return fmt.Sprintf("transfer: insufficient funds: %d wanted, %d available on %s", e.Wanted, e.Available, e.Account)
}
func (e *InsufficientFundsError) Is(target error) bool { return target == ErrInsufficientFunds }

// StaleError is the guard's refusal of a fence that is older than one that the
// account has seen. It matches locking.ErrStale.
type StaleError struct {
	Account uuid.UUID
	Fence   locking.Fence // ours
	Seen    locking.Fence // the account's
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("transfer: fence %d is stale, account %s has seen %d", e.Fence, e.Account, e.Seen)
}
func (e *StaleError) Is(target error) bool { return target == locking.ErrStale }

// EpochError is the guard's refusal to compare numbers of two counters: etcd
// was wiped or restored under a database that remembers it, or the process is
// connected to the wrong one. NewEpoch is the operator's answer to the first.
// It matches ErrEpoch.
type EpochError struct {
	Account uuid.UUID
	Epoch   string // ours
	Seen    string // the account's
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("transfer: account %s is fenced in epoch %q, this lock service is in %q: was it wiped or restored? then start a new fence epoch", e.Account, e.Seen, e.Epoch)
}
func (e *EpochError) Is(target error) bool { return target == ErrEpoch }

// Config of a Service. Pool is required; the stores for the strategies that use them.
type Config struct {
	Pool     *pgxpool.Pool   // made with pgtx.PoolConfig
	Locks    locking.Store   // one that fences, and whose fences outlive a restart: etcd's
	Epoch    string          // names the counter of its fences: changes whenever they begin anew
	LeaseIDs locking.Store   // for lease-id-fence alone: one whose Fence is the lease's id
	Lock     locking.Options // zero fields: what suits locks that are held for milliseconds
	Strategy string          // default "etcd-fenced"
	Encode   Encode          // nil: status 0 and the outcome as JSON
	// Count receives events; nil: nothing is counted.
	Count func(kind EventKind, strategy string)
	// Failpoint is called at each step, for tests; nil in production.
	Failpoint func(ctx context.Context, step Step, strategy string)
}

// Step is a point of a transfer at which a test may stop, slow or kill the process.
type Step = pgtx.Step

// The steps, in order. Strategies without a lock store begin with AfterAcquire, naive
// begins its transaction after AfterGuard, and etcd-fence-only and etcd-unfenced
// pass AfterBegin twice.
const (
	BeforeAcquire Step = "before-acquire"  // b2: checked; nothing is held
	AfterAcquire       = pgtx.AfterAcquire // b5: both locks are held, nothing was read
	AfterBegin         = pgtx.AfterBegin   // b6: in a transaction, and past the last look at ctx before the guard
	AfterGuard         = pgtx.AfterGuard   // b8: both accounts were read (and locked, where they are)
	AfterKey           = pgtx.AfterKey     // b7: the idempotency key is inserted; behind the rows, as the order of locks has it
	BeforeCommit       = pgtx.BeforeCommit // b9: everything is written
	AfterCommit        = pgtx.AfterCommit  // b10: and committed
	AfterRelease  Step = "after-release"   // b11: the locks were given back, no reply was sent yet
)

// Steps lists them in order.
func Steps() []Step {
	return []Step{BeforeAcquire, AfterAcquire, AfterBegin, AfterGuard, AfterKey, BeforeCommit, AfterCommit, AfterRelease}
}

// EventKind is something worth counting.
type EventKind = pgtx.Event

// The kinds of event.
const (
	FenceRefused EventKind = "fence_refused"   // the guard refused an old fence: ErrStale
	GuardTripped           = pgtx.GuardTripped // CHECK (balance >= held) refused a write: the last guard
	Retried                = pgtx.Retried      // a whole transaction ran again (40001, 40P01, connection lost …)
	Ambiguous              = pgtx.Ambiguous    // a COMMIT whose answer was lost
	Resolved               = pgtx.Resolved     // … and was decided by running again with the same key
	Unavailable  EventKind = "unavailable"     // refused, because the lock service did not answer
	Swept        EventKind = "swept"           // a hold expired, and its money is free
)

// Strategy describes one way to move money.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "postgres", "etcd"
	Why    string   // one sentence
}
