// SPDX-License-Identifier: MIT

// Package driver makes a locking.Store of a Driver: it is for authors of stores, and users of a store need not read it.
//
// # The question
//
// A server can grant a key to an owner, for a while. What has to stand between it and locking.Do, so that no answer
// that is lost, late or wrong makes two holders, or none?
//
// # A driver
//
// Each of its three methods sends one request, and reports one of five outcomes:
//
//	done                         nil
//	another has a key            an error that matches locking.ErrBusy
//	the lease is over            locking.ErrLost, from Keep and Free
//	the server refused           Refused(err): nothing was done
//	the request was not sent     Unsent(err): nothing was done; or Again(err), Anew(err)
//	there is no answer           any other error: the request may have taken effect, or may still do so
//
// The Store does what all stores need:
//
//   - Keys are checked and put in order; a TTL that the server would round is an error.
//   - Until counts from before the request, on the monotonic clock, and is a margin shorter than the TTL.
//   - A request to take keys without an answer is sent again, as the same owner, for half the TTL. If none comes, what it may have
//     taken is freed in the background, twice: a busy server may execute a request after one that was sent later.
//   - A request to free keys that fails is repeated in the background.
//   - A request is over after a limit, and returns as soon as its ctx ends, but for the first one that a driver which ignores
//     that leaves without an answer. No time-out of the Store looks like the end of ctx.
//   - The requests of a process for one key wait in a locking.Line: one of them asks the server, again after a pause, or
//     when the driver hears of a release (Listener). A server that keeps a queue of its own has all of them in it instead
//     (Options.Tickets).
//   - Close ends the background work, and waits for it.
//
// Invariant: at any moment at most one lease of a key is within its Until, if Take grants a key to one owner for a TTL, and
// finds the grant of its own owner when it is repeated.
//
// # What goes wrong
//
//	the answer to Take is lost       sent again as the same owner: its grant, with the same fence
//	none comes for half the TTL      ErrOutcomeUnknown; freed in the background
//	… and the key is another's now   ErrBusy; freed in the background, since the first request may still arrive
//	the caller leaves during Take    its error; freed in the background
//	the answer to Keep is lost       an error; the old Until holds
//	the answer to Free is lost       ErrOutcomeUnknown; repeated in the background for a TTL
//	the holder never releases        its place in the line is free at its Until, and so is the key if it is Lasting
//	a waiter leaves the server's     its error; its place is freed in the background
//	queue
//	no message of a release comes    the first waiter asks again after its pause
//	a driver ignores the end of ctx  after its first silence it is called in another goroutine
//	the server is silent             the first request of the line fails after half the TTL, and the next begins: their
//	                                 ctx, or MaxWait, bounds the wait of those behind, which is ErrBusy
//	a lease is released by another   its place in the line of the Store that acquired it is free at its Until
//	Store
package driver

import (
	"context"
	"errors"
	"time"

	"shop/locking"
)

// Driver is what a lock server does for a Store. It is safe for concurrent use. A request should end with its ctx.
type Driver interface {
	// Take takes all keys for owner, or none. The keys are in order, without duplicates. If owner has them already, the
	// grant stays as it is, and its TTL begins again. With wait, the driver may wait in a queue of the
	// server (Options.Queues), or ask to be told of the release (Listener). If ctx ends while it waits, it returns
	// locking.ErrBusy; Free then removes what it has left in the queue.
	Take(ctx context.Context, keys []string, owner string, wait bool) (Grant, error)

	// Keep begins the TTL of a lease again, on all keys or on none. It never takes a key that the lease has lost.
	Keep(ctx context.Context, l locking.Lease) error

	// Free frees the keys of a lease. It is ErrLost if the lease had lost one of them; the others are freed all the same. With
	// Fence 0 it frees what owner may have taken under any fence, or by a request that is still under way.
	Free(ctx context.Context, l locking.Lease) error
}

// Grant is the answer to Take.
type Grant struct {
	Fence locking.Fence // 0: the server cannot fence
	Mark  string        // "": none; else the owner of the lease is OWNER/MARK
	Until time.Time     // zero: a TTL after the request was sent, less DefaultMargin
}

// Listener is a Driver whose server tells of releases.
type Listener interface {
	// Listen calls wake with "" when it has subscribed, and then with each key that may have become free, or each owner that
	// should ask. It returns when ctx ends or the subscription fails, and is called again then.
	Listen(ctx context.Context, wake func(keyOrOwner string)) error
}

// Checker is a Driver that refuses some requests before they wait.
type Checker interface {
	Check(ctx context.Context) error
}

// Closer is a Driver that has something to end, after all requests: Close of the Store calls it, once.
type Closer interface{ Close() }

// Options of a Store. Name, and TTLMin and TTLUnit with a TTL, or else Limit, are required.
type Options struct {
	Name    string // of the package, which begins each error
	Prefix  string // of each key that the Driver gets; a Lease has the keys without it
	NameMax int    // the longest key, with its Prefix, that the Driver takes; 0: any

	TTL     time.Duration // 0: a lease has none, and lasts as long as its connection
	TTLMin  time.Duration // the shortest TTL
	TTLUnit time.Duration // of which a TTL is a multiple

	Trust   time.Duration   // from the sending of a request to Until; 0: the TTL less DefaultMargin
	Lasting bool            // what an owner has does not end with the TTL, but with its process: at Until the Store frees it
	Limit   time.Duration   // of a request, but of one that waits in a queue; 0: a sixth of the TTL
	OneKey  bool            // a lease has one key
	Queues  bool            // Take waits in a queue of the server, and limits each of its requests itself
	Tickets bool            // the server keeps a ticket of each waiter, which Free removes: there is no line in the process
	Shared  bool            // a key has several holders at once: see locking.Nested
	Pause   locking.Backoff // between two requests of a waiter
	Turn    time.Duration   // see locking.Line
	Gap     time.Duration
}

// DefaultMargin is by how much Until is earlier than the TTL: a hundredth of it, for clocks that run at different rates, and
// 2 ms, for a server that counts milliseconds.
func DefaultMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// DefaultLimit lets several requests fit into the half TTL in which one without an answer is repeated.
func DefaultLimit(ttl time.Duration) time.Duration { return ttl / 6 }

// undone is an error after which it is certain that nothing was done.
type undone struct {
	error
	unsent, again, anew bool
}

func (e *undone) Unwrap() error { return e.error }

// Refused is the error of a request that the server has refused: nothing was done. nil stays nil.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return &undone{error: err}
}

// Unsent is the error of a request of which nothing was sent.
func Unsent(err error) error { return &undone{error: err, unsent: true} }

// Again is Unsent for a reason that passes soon, such as an election: a request to take keys is repeated for half the TTL.
func Again(err error) error { return &undone{error: err, unsent: true, again: true} }

// Anew is Again for a waiter that has lost its place in a queue of the server, after any time: it begins anew, and is repeated for
// half the TTL from then on.
func Anew(err error) error { return &undone{error: err, unsent: true, again: true, anew: true} }

// Known reports whether err says that nothing was done: it is Refused, Unsent, Again or Anew.
func Known(err error) bool { return known(err).error != nil }

// known returns what a driver has said of an error.
func known(err error) (what undone) {
	var done *undone
	if errors.As(err, &done) {
		what = *done
	}
	return what
}
